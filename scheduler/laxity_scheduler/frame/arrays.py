"""Rows of a snapshot as arrays that are kept between decisions, and thousands of values made of columns.

What is the same object is not read again. And a frozen dataclass sets each field through
`object.__setattr__`, which is two thirds of what making it costs. So values are made by an open twin of
the class, of the same slots, and then closed: equal in every respect to those that the class makes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import make_dataclass
from functools import cache
from operator import attrgetter, is_not
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Floats
from laxity_scheduler.model.job import Job

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Value = TypeVar("Value")


def carry_over_rows(
    last: Sequence[Job], jobs: Sequence[Job], arrays: Sequence[Floats]
) -> tuple[list[Floats], list[int]]:
    """Arrays with a row for each of these jobs, and which rows must be read anew.

    `arrays` have a row for each of the `last` jobs. What has not changed is copied.
    """
    if not last:
        empty = [np.zeros((len(jobs), *old.shape[1:])) for old in arrays]
        return empty, list(range(len(jobs)))
    changed = [row for row, other in enumerate(map(is_not, jobs, last)) if other]
    if len(jobs) == len(last) and 4 * len(changed) <= len(jobs):
        return [old.copy() for old in arrays], changed
    places = {id(job): place for place, job in enumerate(last)}
    source = [places.get(id(job), -1) for job in jobs]
    sources = np.maximum(np.array(source, dtype=np.int64), 0)
    return [old[sources] for old in arrays], [row for row, place in enumerate(source) if place < 0]


def construct_many(kind: Callable[..., Value], *columns: Iterable[Any]) -> list[Value]:
    """One value per row of the columns, which are all fields in their order (slots, no defaults)."""
    values: list[Any] = list(map(_twin(kind), *columns))
    for value in values:
        value.__class__ = kind
    return values


def replace_fields(value: Value, **fields: Any) -> Value:
    """As `dataclasses.replace`, at a fraction of what that costs."""
    kind: Any = type(value)
    all_fields = dict(zip(_names(kind), _fields_of(kind)(value), strict=True)) | fields
    made: Any = _twin(kind)(*all_fields.values())
    made.__class__ = kind
    return cast("Value", made)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind.__slots__
    return names


@cache
def _fields_of(kind: Any) -> Callable[[Any], tuple[Any, ...]]:
    getter: Callable[[Any], tuple[Any, ...]] = attrgetter(*_names(kind))
    return getter


@cache
def _twin(kind: Any) -> type:
    return make_dataclass(f"Open{kind.__name__}", _names(kind), slots=True, eq=False)
