"""A QoS as annotations of a Job, and back: what kubectl shows is what the user said.

Annotations come from anybody who may create a Job, so they are read strictly: every wrong one is
named, an unknown one is an error with the nearest known name, and sizes are bounded.
"""

import difflib
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, cast

from laxity import names
from laxity.durations import format_duration, parse_duration, parse_zoned_deadline
from laxity.job.qos import QoS, QoSError, raise_all
from laxity.job.widths import format_widths, parse_widths

FieldTable = Mapping[str, tuple[str, Callable[[str], Any]]]  # by annotation: the field, its parser
LONGEST_VALUE: Final = 65_536
LONGEST_KEPT: Final = 512  # characters of a QoS that is remembered
KNOWN: Final = frozenset(
    value
    for value in vars(names).values()
    if isinstance(value, str) and value.startswith(f"{names.DOMAIN}/")
)
INPUTS: Final = tuple(sorted(KNOWN.difference(names.OUTPUTS, {names.MANAGED, names.VERDICT_LABEL})))


def field_name(annotation: str) -> str:
    """The field's name as errors show it: "deadline" of "laxity.dev/deadline"."""
    return annotation.removeprefix(f"{names.DOMAIN}/")


def as_annotated(error: QoSError) -> QoSError:
    """The error with its fields as a Job spells them: "batch-size" for batch_size."""
    problems = [(_annotation_field(where), what) for where, what in error.problems]
    return QoSError(*problems[0], *problems[1:])


def _annotation_field(field: str) -> str:
    hyphened = field.replace("_", "-")
    return hyphened if f"{names.DOMAIN}/{hyphened}" in KNOWN else _SPELLED.get(field, field)


def write_qos(qos: QoS) -> dict[str, str]:
    """Only what differs from the default, but class and widths, which a reader wants to see."""
    annotations = {names.CLASS: qos.service_class, names.WIDTHS: format_widths(qos.widths)}
    if qos.deadline is not None:
        annotations[names.DEADLINE] = qos.deadline_text
    if qos.epoch_estimate_s is not None:
        annotations[names.EPOCH_ESTIMATE] = format_duration(timedelta(seconds=qos.epoch_estimate_s))
    if not qos.preemptible:
        annotations[names.PREEMPTIBLE] = "false"
    if qos.on_miss != "continue":
        annotations[names.ON_MISS] = qos.on_miss
    if qos.wall_limit_s is not None:
        annotations[names.WALL_LIMIT] = format_duration(timedelta(seconds=qos.wall_limit_s))
    return annotations


def read_qos(annotations: Mapping[str, object], *, gpus_per_worker: int = 1) -> QoS:
    """The QoS that the annotations say; what laxity itself writes is passed over."""
    problems = unknown_annotations(annotations)
    if not problems:
        texts = cast("tuple[str | None, ...]", tuple(map(annotations.get, _FIELDS)))
        if sum(len(text or "") for text in texts) <= LONGEST_KEPT:
            return read_cached(texts, gpus_per_worker)
    return _read_fields(annotations, gpus_per_worker, problems)


@lru_cache(maxsize=256)  # with 4,096 widths each holds 150 kB
def read_cached(texts: tuple[str | None, ...], gpus_per_worker: int) -> QoS:
    """Thousands of Jobs say the same few things: each is read once, errors each time."""
    annotations = {
        name: text for name, text in zip(_FIELDS, texts, strict=True) if text is not None
    }
    return _read_fields(annotations, gpus_per_worker, [])


def _read_fields(
    annotations: Mapping[str, object], gpus_per_worker: int, problems: list[QoSError]
) -> QoS:
    fields = parse_fields(annotations, _FIELDS, problems)
    qos = build_qos({"gpus_per_worker": gpus_per_worker, **fields}, problems)
    raise_all(problems)
    return qos


def parse_fields(
    annotations: Mapping[str, object], table: FieldTable, problems: list[QoSError]
) -> dict[str, Any]:
    """The fields that these annotations say; what cannot be read is added to `problems`.

    What is no text, or too long, is passed over: `unknown_annotations` tells of it.
    """
    fields: dict[str, Any] = {}
    for annotation, (field, parse) in table.items():
        value = annotations.get(annotation)
        if not isinstance(value, str) or _is_too_long(value):
            continue
        try:
            fields[field] = parse(value)
        except (ValueError, RecursionError) as error:
            problems.append(QoSError(field_name(annotation), str(error)))
    return fields


def unknown_annotations(annotations: Mapping[str, object]) -> list[QoSError]:
    """What is wrong with laxity's own annotations before any is read: unknown, no text, too long."""
    errors: list[QoSError] = []
    for annotation, value in annotations.items():
        if not annotation.startswith(f"{names.DOMAIN}/"):
            continue
        field = field_name(annotation)
        if annotation not in KNOWN:
            nearest = difflib.get_close_matches(annotation[:100], INPUTS, n=1, cutoff=0.0)[0]
            errors.append(
                QoSError(field[:100], f"no such annotation; the nearest known is {nearest}")
            )
        elif annotation in names.OUTPUTS:
            continue
        elif not isinstance(value, str):
            errors.append(QoSError(field, f"{value!r} is no text; put it into quotes"))
        elif _is_too_long(value):
            errors.append(QoSError(field, f"longer than {LONGEST_VALUE // 1024} KiB"))
    return errors


def _is_too_long(value: str) -> bool:
    return len(value.encode(errors="replace")) > LONGEST_VALUE


def parse_flag(text: str) -> bool:
    if text in {"true", "false"}:
        return text == "true"
    raise ValueError(f"{text[:40]!r} is neither 'true' nor 'false'")


def build_qos(fields: Mapping[str, Any], problems: list[QoSError]) -> QoS:
    """The QoS of the fields that could be read; further problems are added to `problems`."""
    try:
        return QoS(**fields)
    except QoSError as error:
        unread = {problem.field for problem in problems}
        if not unread.intersection({"deadline", "class"}) or error.field != "deadline":
            problems.append(as_annotated(error))
        return QoS()


def _parse_seconds(text: str) -> float:
    return parse_duration(text).total_seconds()


_FIELDS: Final[FieldTable] = {
    names.DEADLINE: ("deadline", parse_zoned_deadline),
    names.CLASS: ("service_class", str),
    names.WIDTHS: ("widths", parse_widths),
    names.PREEMPTIBLE: ("preemptible", parse_flag),
    names.EPOCH_ESTIMATE: ("epoch_estimate_s", _parse_seconds),
    names.ON_MISS: ("on_miss", str),
    names.WALL_LIMIT: ("wall_limit_s", _parse_seconds),
}
# What Python calls by other names than a Job; the others differ in their hyphens alone.
_SPELLED: Final = {"service_class": "class", "workers": "widths", "gpus_per_worker": "resources"}
