"""Snapshots, plans, decisions and verdicts as compact JSON, and back, with nothing lost.

JSON has no infinity, no NaN and no integer above 64 bits that every reader agrees on, and a
snapshot has them all (a job without a deadline is due at infinity). They are written as text where
a number is due, so that what is read back is equal bit for bit; a field that has its default is
left out, so that an idle job costs a few dozen bytes, and a journal written before a field existed
can still be read.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from math import copysign, isfinite
from operator import attrgetter
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import orjson

from laxity_scheduler.model.cluster import ClusterState, Node
from laxity_scheduler.model.decision import Decision
from laxity_scheduler.model.job import Job, Verdict
from laxity_scheduler.plan import Plan

Write = Callable[[Any], Any]
Read = Callable[[Any], Any]
Codec = tuple[Write, Read]
_EXACT_INT = 2**53  # above it other readers of JSON lose digits, and orjson itself stops at 2**64
_UNSET = object()


class CodecError(ValueError):
    """Cannot be decoded: a field, a kind or a number is unknown."""


def encode_record(value: object) -> bytes:
    """Any dataclass of the core as JSON bytes; equal values give equal bytes."""
    return orjson.dumps(to_json(value))


def json_bytes(value: object) -> bytes:
    """Compact JSON that holds no more memory than its size: orjson's own bytes keep 16 kB and more."""
    return memoryview(orjson.dumps(value)).tobytes()


def to_json(value: object) -> Any:
    """Any dataclass of the core as plain JSON values."""
    return _codec_of(cast("Any", type(value)))[0](value)


@dataclass(frozen=True, slots=True)
class EncodedPlan:
    """A plan encoded once for all uses: each decision as plain values and as bytes."""

    decisions: Sequence[dict[str, Any]]
    bodies: Sequence[bytes]
    text: bytes


def encode_plan(plan: Plan) -> EncodedPlan:
    """The bytes equal those of `encode_record(plan)`; each decision is encoded only once."""
    decisions = [decision_json(decision) for decision in plan.decisions]
    bodies = [json_bytes(decision) for decision in decisions]
    fragments = {"decisions": [orjson.Fragment(body) for body in bodies]} if bodies else {}
    text = orjson.dumps({**fragments, **to_json(Plan(wake_at=plan.wake_at))})
    return EncodedPlan(decisions, bodies, text)


def plan_bytes(plan: Plan) -> bytes:
    """A plan; equal plans give equal bytes."""
    return encode_plan(plan).text


def load_plan(text: bytes) -> Plan:
    return cast("Plan", from_json(Plan, orjson.loads(text)))


def load_state(text: bytes) -> ClusterState:
    return cast("ClusterState", from_json(ClusterState, orjson.loads(text)))


def verdict_json(verdict: Verdict | None) -> Any:
    """A verdict with its kind, or None."""
    return _codec_of(Verdict | None)[0](verdict)


def load_verdict(value: Any) -> Verdict | None:
    return cast("Verdict | None", from_json(Verdict | None, value))


def decision_json(decision: Decision) -> dict[str, Any]:
    return cast("dict[str, Any]", _codec_of(Decision)[0](decision))


def load_job(value: Any) -> Job:
    return cast("Job", from_json(Job, value))


def load_node(value: Any) -> Node:
    return cast("Node", from_json(Node, value))


def from_json(wanted: Any, value: Any) -> Any:
    """The value of the type `wanted` that `to_json` wrote. CodecError says what does not fit."""
    try:
        return _codec_of(wanted)[1](value)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        message = f"{value!r:.200} is no {getattr(wanted, '__name__', wanted)}: {error}"
        raise CodecError(message) from error


@cache
def _codec_of(wanted: Any) -> Codec:
    """How values of this type are written, and read again."""
    if _is_record(wanted):
        return _record_writer(cast("type", wanted)), _record_reader(cast("type", wanted))
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return _union_codec(arguments)
    if origin is frozenset:
        return sorted, frozenset
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _pair_codec(*map(_codec_of, arguments))
    if origin is tuple:
        write, read = _codec_of(arguments[0])
        return lambda row: [write(value) for value in row], lambda row: tuple(map(read, row))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        write, read = _codec_of(arguments[1])
        return (
            lambda table: {key: write(table[key]) for key in sorted(table)},
            lambda table: {key: read(value) for key, value in table.items()},
        )
    return _pass_through, _pass_through


def _pair_codec(first: Codec, second: Codec) -> Codec:
    """Pairs are many: facts of reasons."""
    (write_first, read_first), (write_second, read_second) = first, second

    def write_pair(row: Any) -> list[Any]:
        left, right = row
        return [
            left if write_first is _pass_through else write_first(left),
            right if write_second is _pass_through else write_second(right),
        ]

    def read_pair(row: Any) -> tuple[Any, Any]:
        left, right = row
        return read_first(left), read_second(right)

    return write_pair, read_pair


def _record_writer(record: type) -> Write:
    """Fields that count, in their order; those that have their default are left out."""
    hints = get_type_hints(record)
    compared = [field for field in fields(record) if field.compare]
    names = tuple(field.name for field in compared)
    values = attrgetter(*names) if len(names) > 1 else lambda row: (getattr(row, names[0]),)
    writers = tuple(_codec_of(hints[name])[0] for name in names)
    defaults = tuple(_UNSET if field.default is MISSING else field.default for field in compared)
    texts = tuple(
        default if default is _UNSET else write(default)
        for default, write in zip(defaults, writers, strict=True)
    )
    columns = tuple(zip(names, writers, defaults, texts, strict=True))

    def write_record(row: Any) -> dict[str, Any]:
        record = {}
        for (name, write, default, default_text), value in zip(columns, values(row), strict=True):
            if value is default:  # the common case, without encoding it
                continue
            text = value if write is _pass_through else write(value)
            if default_text is _UNSET or not _is_alike(text, default_text):
                record[name] = text
        return record

    return write_record


def _is_alike(value: Any, other: Any) -> bool:
    """Equal and of one type; 0.0 and -0.0 are not alike."""
    if type(value) is not type(other) or value != other:
        return False
    return not isinstance(value, float) or copysign(1.0, value) == copysign(1.0, other)


def _record_reader(record: type) -> Read:
    hints = get_type_hints(record)
    readers = {field.name: _codec_of(hints[field.name])[1] for field in fields(record)}
    return lambda row: record(**{name: readers[name](value) for name, value in row.items()})


def _union_codec(members: tuple[Any, ...]) -> Codec:
    """Records of a union carry their kind; `X | None` and plain scalars need none."""
    codecs = {member.__name__: _codec_of(member) for member in members if _is_record(member)}
    if not codecs:
        rest = [member for member in members if member is not type(None)]
        write, read = _codec_of(rest[0]) if len(rest) == 1 else (_write_fact, _read_fact)
        return (
            lambda value: None if value is None else write(value),
            lambda value: None if value is None else read(value),
        )

    def write_kind(value: Any) -> Any:
        if value is None:
            return None
        kind = type(value).__name__
        return {"kind": kind, **codecs[kind][0](value)}

    def read_kind(value: Any) -> Any:
        if value is None:
            return None
        return codecs[value["kind"]][1]({key: value[key] for key in value if key != "kind"})

    return write_kind, read_kind


def _is_record(wanted: Any) -> bool:
    return is_dataclass(wanted)


def _pass_through(value: Any) -> Any:
    return value


def _write_float(value: Any) -> float | int | str:
    if type(value) is float and isfinite(value):
        return value
    number = value if type(value) in (float, int) else float(value)
    if type(number) is float and not isfinite(number):
        return repr(number)
    return number if type(number) is float else _write_int(number)


def _read_float(value: Any) -> float | int:
    if not isinstance(value, str):
        return cast("float | int", value)
    return float(value) if value in ("inf", "-inf", "nan") else int(value)


def _write_int(value: Any) -> int | str:
    number = value if type(value) is int else int(value)
    return number if -_EXACT_INT < number < _EXACT_INT else str(number)


def _read_int(value: Any) -> int:
    return int(value) if isinstance(value, str) else cast("int", value)


def _write_fact(value: Any) -> Any:
    """A fact of a reason: text, a number or None; a number that JSON lacks is text in a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if isinstance(value, bool) or value is None:
        return value
    number = value if type(value) is int or isinstance(value, float) else int(value)
    text = _write_int(number) if type(number) is int else _write_float(float(number))
    return [text] if isinstance(text, str) else text


def _read_fact(value: Any) -> Any:
    return _read_float(value[0]) if isinstance(value, list) else value


_SCALARS: dict[Any, Codec] = {
    float: (_write_float, _read_float),
    int: (_write_int, _read_int),
    str: (_pass_through, _pass_through),
    bool: (_pass_through, _pass_through),
}
