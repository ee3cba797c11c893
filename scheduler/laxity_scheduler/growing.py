# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Idle GPUs to thousands of jobs that start: most seconds saved per GPU first, as `sizing.widen`.

A heap of (key, rank, level): the key is minus the seconds that a wider level saves per GPU, the rank
a job's place by its id. A job that has grown offers its wider levels anew.
"""

from typing import NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.compiled import jit
from laxity_scheduler.placing import Nodes, place
from laxity_scheduler.share_table import Ints


class Heap(NamedTuple):
    """Offers, least first."""

    key: Floats  # (m,)
    rank: Ints  # (m,)
    row: Ints  # (m, 2): job and level


class Grown(NamedTuple):
    """Who grew, in order, until where in `taken` the nodes reach."""

    taken: Ints
    job: Ints
    ends: Ints


@jit
def before(heap: Heap, one: int, other: int) -> bool:
    if heap.key[one] != heap.key[other]:
        return bool(heap.key[one] < heap.key[other])
    if heap.rank[one] != heap.rank[other]:
        return bool(heap.rank[one] < heap.rank[other])
    return bool(heap.row[one, 1] < heap.row[other, 1])


@jit
def swap(heap: Heap, one: int, other: int) -> None:
    heap.key[one], heap.key[other] = heap.key[other], heap.key[one]
    heap.rank[one], heap.rank[other] = heap.rank[other], heap.rank[one]
    for at in range(2):
        held = heap.row[one, at]
        heap.row[one, at] = heap.row[other, at]
        heap.row[other, at] = held


@jit
def push(heap: Heap, size: int, key: float, rank: int, job: int, level: int) -> int:
    heap.key[size], heap.rank[size] = key, rank
    heap.row[size, 0], heap.row[size, 1] = job, level
    at = size
    while at and before(heap, at, (at - 1) // 2):
        swap(heap, at, (at - 1) // 2)
        at = (at - 1) // 2
    return size + 1


@jit
def pop(heap: Heap, size: int) -> int:
    """The least goes to the end, behind the others."""
    size -= 1
    swap(heap, 0, size)
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(heap, child + 1, child):
            child += 1
        if not before(heap, child, at):
            break
        swap(heap, at, child)
        at = child
    return size


@jit
def offer(
    heap: Heap, size: int, job: int, at: int, rank: int, gpus: int, rest: Floats, width: Ints
) -> int:
    """All wider levels of a job that has level `at`."""
    now_s = rest[job, at]
    for higher in range(at + 1, rest.shape[1]):
        saved_s = now_s - rest[job, higher]
        if saved_s > 0.0:
            more = (width[job, higher] - width[job, at]) * gpus
            size = push(heap, size, -saved_s / more, rank, job, higher)
    return size


@jit
def grow(
    nodes: Nodes, level: Ints, ranks: Ints, gpus: Ints, rest: Floats, width: Ints, grown: Grown
) -> int:
    """Raise `level` (n,) while GPUs are free; `rest` and `width` are (n, L). How many steps."""
    jobs, levels = rest.shape
    most = jobs * levels * (levels + 1) // 2 + 1
    heap = Heap(np.empty(most), np.empty(most, np.int64), np.empty((most, 2), np.int64))
    size, steps, at = 0, 0, 0
    for job in range(jobs):
        size = offer(heap, size, job, level[job], ranks[job], gpus[job], rest, width)
    while size and nodes.total[0]:
        size = pop(heap, size)
        job, higher = heap.row[size, 0], heap.row[size, 1]
        more = width[job, higher] - width[job, level[job]]
        if more <= 0 or not place(nodes, more, gpus[job], grown.taken, at):
            continue
        level[job] = higher
        at += more
        grown.job[steps], grown.ends[steps] = job, at
        steps += 1
        size = offer(heap, size, job, higher, ranks[job], gpus[job], rest, width)
    return steps
