"""Values of a report line, which a worker, or anybody, may have written: read without trust.

Every number is read with `laxity.parsing` and has bounds that no honest training reaches.
"""

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeGuard

import orjson

from laxity.job.qos import MOST_EPOCHS
from laxity.job.widths import MOST_WORKERS
from laxity.parsing import MOST, finite_number, whole_number

MOST_SHARE: Final = 0.99  # of an epoch that is not over
SHORTEST_S: Final = 1e-6  # no epoch is over so soon
LONGEST_S: Final = 1e7  # four months: no epoch and no stop takes so long
MOST_SEQ: Final = 2**31
TEXT_LIMIT: Final = 8_000
MOST_READINGS: Final = 1_000
RESULT_LIMIT: Final = 262_144
LONGEST_READING_S: Final = 1e6  # eleven days; each second of it costs memory


class InvalidReportError(ValueError):
    """A field of a line cannot be true; the message says which and why."""


def clean_text(text: str) -> str:
    """Text that every database and every writer of JSON takes: no NUL, no half of a character."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def text_of(value: object) -> str:
    """A text that can be kept of any JSON value; "" for nothing."""
    text = value if isinstance(value, str) else shorten_line(value, TEXT_LIMIT) if value else ""
    return clean_text(text[:TEXT_LIMIT])


def _whole_number(value: object, *, least: int, most: int = MOST) -> int | None:
    """A whole number; None for anything else, also for one in quotes."""
    return None if isinstance(value, str) else whole_number(value, least=least, most=most)


def seq_of(line: object) -> int:
    """The number of a line, 0 if it has none."""
    seq = line.get("seq") if isinstance(line, Mapping) else None
    return _whole_number(seq, least=1, most=MOST_SEQ) or 0


def is_number(value: object) -> TypeGuard[float]:
    return finite_number(value) is not None


def is_size(value: object) -> TypeGuard[int]:
    return _whole_number(value, least=0) is not None


def _is_growing(
    values: object, is_valid: Callable[[object], bool], *, strictly: bool = True
) -> TypeGuard[list[Any]]:
    if not isinstance(values, list) or not all(is_valid(value) for value in values):
        return False
    return all(b > a or (b == a and not strictly) for a, b in pairwise(values))


def count_in(line: Mapping[str, Any], name: str, *, least: int = 1) -> int:
    value = line.get(name)
    count = _whole_number(value, least=least, most=MOST_SEQ)
    if count is None:
        raise InvalidReportError(
            f"{name} {shorten_line(value, 40)} is no whole number from {least} up"
        )
    return count


def share_in(line: Mapping[str, Any]) -> float:
    """The share of an epoch that a line names; 0 where it names none that can be."""
    share = finite_number(line.get("share"), least=0.0, most=1.0)
    return 0.0 if share is None else min(share, MOST_SHARE)


def width_in(line: Mapping[str, Any]) -> int:
    width = count_in(line, "width")
    if width > MOST_WORKERS:
        raise InvalidReportError(f"width {width}: no job has more than {MOST_WORKERS} workers")
    return width


def seconds_in(line: Mapping[str, Any], name: str, *, least: float = 0.0) -> float:
    seconds = finite_number(line.get(name), least=least, most=LONGEST_S)
    if seconds is None:
        shown = shorten_line(line.get(name), 40)
        raise InvalidReportError(f"{name} {shown} is no believable number of seconds")
    return seconds


def bytes_in(line: Mapping[str, Any]) -> int | None:
    size = finite_number(line.get("bytes"), least=0.0)
    return None if size is None else int(size)


def sizes_in(line: Mapping[str, Any]) -> dict[str, int]:
    """What a training declares of itself, by the fields of a workload."""
    fields = {
        "samples": "samples",
        "batch_size": "batch_size",
        "size": "parameters",
        "epochs": "epochs",
    }
    sizes = {}
    for name, field in fields.items():
        if line.get(name) is not None:
            size = _whole_number(
                line[name], least=1, most=MOST_EPOCHS if name == "epochs" else MOST
            )
            if size is None:
                shown = shorten_line(line[name], 40)
                raise InvalidReportError(f"{name} {shown} is no whole number from 1 up")
            sizes[field] = size
    return sizes


def readable_result(result: object) -> tuple[Any, str]:
    """The result as JSON gives it back, and why it cannot be kept; "" if it can."""
    try:
        text = orjson.dumps(result)
    except TypeError as error:
        return None, f"its result is no JSON that can be kept: {clean_text(str(error))}"
    if len(text) <= RESULT_LIMIT:
        return orjson.loads(text), ""
    return None, f"its result has {len(text)} bytes of JSON; at most {RESULT_LIMIT} are kept"


def reading_in(line: Mapping[str, Any]) -> dict[str, Any]:
    """What was read of an epoch up to which second of it."""
    seconds, read = line.get("read_s"), line.get("read_bytes")
    if not _is_growing(seconds, is_number) or not _is_growing(read, is_size, strictly=False):
        raise InvalidReportError("read_s and read_bytes are no lists of numbers that grow")
    if len(seconds) != len(read) or not 2 <= len(read) <= MOST_READINGS:
        raise InvalidReportError(
            f"{len(seconds)} seconds and {len(read)} readings do not go together"
        )
    if not 0.0 <= seconds[0] <= seconds[-1] <= LONGEST_READING_S:
        raise InvalidReportError(f"read_s runs from {seconds[0]:g} to {seconds[-1]:g}")
    file_bytes, storage_bytes = line.get("file_bytes"), line.get("storage_bytes")
    return {
        "read_s": seconds,
        "read_bytes": read,
        "by": shorten_line(line.get("by"), 20).strip('"'),
        "file_bytes": file_bytes if is_size(file_bytes) else 0,
        "storage_bytes": storage_bytes if is_size(storage_bytes) else None,
    }


def shorten_line(line: object, limit: int = 500) -> str:
    """A line as text; one that is no JSON as Python shows it. Never fails."""
    try:
        text = json.dumps(line, default=str)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(line).__name__} that cannot be written"
    return text[:limit]
