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
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.verdict import Verdict
from laxity_scheduler.plan import Plan

Write = Callable[[Any], Any]
Read = Callable[[Any], Any]
_EXACT_INT = 2**53  # above it other readers of JSON lose digits, and orjson itself stops at 2**64
_UNSET = object()


class CodecError(ValueError):
    """What was read is not what was written: a field, a kind or a number is unknown."""


def dumps(value: object) -> bytes:
    """Any dataclass of the core as JSON bytes; equal values give equal bytes."""
    return orjson.dumps(to_json(value))


def to_json(value: object) -> Any:
    """Any dataclass of the core as plain JSON values."""
    return _writer(cast("Any", type(value)))(value)


@dataclass(frozen=True, slots=True)
class WrittenPlan:
    """A plan written once, for all who keep it: each decision as plain values and as bytes."""

    decisions: Sequence[dict[str, Any]]
    bodies: Sequence[bytes]
    text: bytes


def written(plan: Plan) -> WrittenPlan:
    """The bytes are those of `dumps`; a decision is not written again to stand among the others."""
    decisions = [decision_json(decision) for decision in plan.decisions]
    bodies = [orjson.dumps(decision) for decision in decisions]
    said = {"decisions": [orjson.Fragment(body) for body in bodies]} if bodies else {}
    text = orjson.dumps({**said, **to_json(Plan(wake_at=plan.wake_at))})
    return WrittenPlan(decisions, bodies, text)


def plan_bytes(plan: Plan) -> bytes:
    """A plan; equal plans give equal bytes."""
    return written(plan).text


def load_plan(text: bytes) -> Plan:
    return cast("Plan", from_json(Plan, orjson.loads(text)))


def load_state(text: bytes) -> ClusterState:
    return cast("ClusterState", from_json(ClusterState, orjson.loads(text)))


def verdict_json(verdict: Verdict | None) -> Any:
    """A verdict with its kind, or None."""
    return _writer(Verdict | None)(verdict)


def load_verdict(value: Any) -> Verdict | None:
    return cast("Verdict | None", from_json(Verdict | None, value))


def decision_json(decision: Decision) -> dict[str, Any]:
    return cast("dict[str, Any]", _writer(Decision)(decision))


def load_decision(value: Any) -> Decision:
    return cast("Decision", from_json(Decision, value))


def load_job(value: Any) -> Job:
    return cast("Job", from_json(Job, value))


def load_node(value: Any) -> Node:
    return cast("Node", from_json(Node, value))


def from_json(wanted: Any, value: Any) -> Any:
    """The value of the type `wanted` that `to_json` wrote. CodecError says what does not fit."""
    try:
        return _reader(wanted)(value)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        message = f"{value!r:.200} is no {getattr(wanted, '__name__', wanted)}: {error}"
        raise CodecError(message) from error


@cache
def _writer(wanted: Any) -> Write:
    if _is_record(wanted):
        return _record_writer(cast("type", wanted))
    if wanted in _SCALARS:
        return _SCALARS[wanted][0]
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return _union_writer(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        item = _writer(arguments[0])
        return lambda row: [item(value) for value in row]
    if origin is frozenset:
        return sorted
    if origin is tuple:
        return _row_writer([_writer(argument) for argument in arguments])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        item = _writer(arguments[1])
        return lambda table: {key: item(table[key]) for key in sorted(table)}
    return _same


def _row_writer(items: Sequence[Write]) -> Write:
    """A tuple of so many values; facts of reasons are pairs, and there are many of them."""
    if len(items) != 2:
        return lambda row: [write(value) for write, value in zip(items, row, strict=True)]
    first, second = items

    def write_pair(row: Any) -> list[Any]:
        one, two = row
        return [one if first is _same else first(one), two if second is _same else second(two)]

    return write_pair


def _record_writer(record: type) -> Write:
    """Fields in their order; those that have their default are left out."""
    hints = get_type_hints(record)
    names = tuple(field.name for field in fields(record))
    values = attrgetter(*names) if len(names) > 1 else lambda row: (getattr(row, names[0]),)
    writers = tuple(_writer(hints[name]) for name in names)
    defaults = tuple(
        _UNSET if field.default is MISSING else field.default for field in fields(record)
    )
    texts = tuple(
        default if default is _UNSET else write(default)
        for default, write in zip(defaults, writers, strict=True)
    )
    columns = tuple(zip(names, writers, defaults, texts, strict=True))

    def write_record(row: Any) -> dict[str, Any]:
        written = {}
        for (name, write, default, unsaid), value in zip(columns, values(row), strict=True):
            if value is default:  # as nearly all are: it need not even be written to be compared
                continue
            text = value if write is _same else write(value)
            if unsaid is _UNSET or not _alike(text, unsaid):
                written[name] = text
        return written

    return write_record


def _alike(one: Any, other: Any) -> bool:
    """Equal and of one type; 0.0 and -0.0 are not alike."""
    if type(one) is not type(other) or one != other:
        return False
    return not isinstance(one, float) or copysign(1.0, one) == copysign(1.0, other)


def _union_writer(members: tuple[Any, ...]) -> Write:
    """Records of a union carry their kind; `X | None` and plain scalars need none."""
    records: dict[Any, Write] = {
        member: _writer(member) for member in members if _is_record(member)
    }
    rest = [member for member in members if member not in records and member is not type(None)]
    if not records:
        scalar = _writer(rest[0]) if len(rest) == 1 else _mixed_out
        return lambda value: None if value is None else scalar(value)

    def write_kind(value: Any) -> Any:
        if value is None:
            return None
        return {"kind": type(value).__name__, **records[type(value)](value)}

    return write_kind


@cache
def _reader(wanted: Any) -> Read:
    if _is_record(wanted):
        return _record_reader(cast("type", wanted))
    if wanted in _SCALARS:
        return _SCALARS[wanted][1]
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return _union_reader(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        item = _reader(arguments[0])
        return lambda row: tuple(item(value) for value in row)
    if origin is frozenset:
        return frozenset
    if origin is tuple:
        items = tuple(_reader(argument) for argument in arguments)
        return lambda row: tuple(read(value) for read, value in zip(items, row, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        item = _reader(arguments[1])
        return lambda table: {key: item(value) for key, value in table.items()}
    return _same


def _record_reader(record: type) -> Read:
    hints = get_type_hints(record)
    readers = {field.name: _reader(hints[field.name]) for field in fields(record)}
    return lambda row: record(**{name: readers[name](value) for name, value in row.items()})


def _union_reader(members: tuple[Any, ...]) -> Read:
    records = {member.__name__: _reader(member) for member in members if _is_record(member)}
    rest = [m for m in members if not _is_record(m) and m is not type(None)]
    if not records:
        scalar = _reader(rest[0]) if len(rest) == 1 else _mixed_in
        return lambda value: None if value is None else scalar(value)

    def read_kind(value: Any) -> Any:
        if value is None:
            return None
        return records[value["kind"]]({key: value[key] for key in value if key != "kind"})

    return read_kind


def _is_record(wanted: Any) -> bool:
    return is_dataclass(wanted)


def _same(value: Any) -> Any:
    return value


def _float_out(value: Any) -> float | int | str:
    if type(value) is float and isfinite(value):
        return value
    number = value if type(value) in (float, int) else float(value)
    if type(number) is float and not isfinite(number):
        return repr(number)
    return number if type(number) is float else _int_out(number)


def _float_in(value: Any) -> float | int:
    if not isinstance(value, str):
        return cast("float | int", value)
    return float(value) if value in ("inf", "-inf", "nan") else int(value)


def _int_out(value: Any) -> int | str:
    number = value if type(value) is int else int(value)
    return number if -_EXACT_INT < number < _EXACT_INT else str(number)


def _int_in(value: Any) -> int:
    return int(value) if isinstance(value, str) else cast("int", value)


def _mixed_out(value: Any) -> Any:
    """A fact of a reason: text, a number or nothing; what JSON cannot say stands in a list."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if isinstance(value, bool) or value is None:
        return value
    number = value if type(value) is int or isinstance(value, float) else int(value)
    text = _int_out(number) if type(number) is int else _float_out(float(number))
    return [text] if isinstance(text, str) else text


def _mixed_in(value: Any) -> Any:
    return _float_in(value[0]) if isinstance(value, list) else value


_SCALARS: dict[Any, tuple[Write, Read]] = {
    float: (_float_out, _float_in),
    int: (_int_out, _int_in),
    str: (_same, _same),
    bool: (_same, _same),
}
