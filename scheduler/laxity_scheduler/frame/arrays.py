"""Rows of a snapshot as arrays that are kept between decisions: what is the same object is not read again."""

from collections.abc import Sequence
from operator import is_not

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Floats
from laxity_scheduler.model.job import Job

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


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
