# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Idle GPUs to thousands of jobs that start: most seconds saved per GPU first, as `sizing.widen`.

A heap of (key, rank, level): the key is minus the seconds that a wider level saves per GPU, the rank
a job's place by its id. A job that has grown offers its wider levels anew.
"""

from typing import NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.columns.placing import Nodes, place
from laxity_scheduler.columns.tied_placing import Ground, site
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit


class Offers(NamedTuple):
    """Offers as they were made; the first ones sorted, a heap of the later ones, least first."""

    key: Floats  # (m,)
    rank: Ints  # (m,)
    job: Ints  # (m,)
    level: Ints  # (m,)
    heap: Ints  # (m,): numbers
    many: Ints  # (2,): offers made, and how many of them are in the heap


class Grown(NamedTuple):
    """Who grew, in order, until where in `taken` the nodes reach."""

    taken: Ints
    job: Ints
    ends: Ints


@jit
def before(offers: Offers, one: int, other: int) -> bool:
    if offers.key[one] != offers.key[other]:
        return bool(offers.key[one] < offers.key[other])
    if offers.rank[one] != offers.rank[other]:
        return bool(offers.rank[one] < offers.rank[other])
    return bool(offers.level[one] < offers.level[other])


@jit
def push(offers: Offers, new: int) -> None:
    at = offers.many[1]
    while at and before(offers, new, offers.heap[(at - 1) // 2]):
        offers.heap[at] = offers.heap[(at - 1) // 2]
        at = (at - 1) // 2
    offers.heap[at] = new
    offers.many[1] += 1


@jit
def pop(offers: Offers) -> None:
    """Take the least out of the heap."""
    heap, size = offers.heap, offers.many[1] - 1
    last, at = heap[size], 0
    offers.many[1] = size
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(offers, heap[child + 1], heap[child]):
            child += 1
        if not before(offers, heap[child], last):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last


@jit
def offer(
    offers: Offers, job: int, at: int, rank: int, gpus: int, rest: Floats, width: Ints
) -> int:
    """All wider levels of a job that has level `at`; the number of the first of them."""
    first, now_s = offers.many[0], rest[job, at]
    for higher in range(at + 1, rest.shape[1]):
        saved_s = now_s - rest[job, higher]
        if saved_s > 0.0:
            new, more = offers.many[0], (width[job, higher] - width[job, at]) * gpus
            offers.key[new], offers.rank[new] = -saved_s / more, rank
            offers.job[new], offers.level[new] = job, higher
            offers.many[0] += 1
    return int(first)


@jit
def offers_of(most: int) -> Offers:
    """Room for so many offers."""
    return Offers(
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(2, np.int64),
    )


@jit
def grow(
    nodes: Nodes,
    ground: Ground | None,
    level: Ints,
    ranks: Ints,
    gpus: Ints,
    rest: Floats,
    width: Ints,
    grown: Grown,
) -> int:
    """Raise `level` (n,) while GPUs are free; `rest` and `width` are (n, L). How many steps.

    Where some jobs may use some nodes only, they are placed on `ground`; `nodes` shares its total.
    """
    jobs, levels = rest.shape
    offers, steps, at = offers_of(jobs * levels * (levels + 1) // 2 + 1), 0, 0
    for job in np.argsort(ranks):
        offer(offers, job, level[job], ranks[job], gpus[job], rest, width)
    order = np.argsort(offers.key[: offers.many[0]], kind="mergesort")  # by rank and level then
    following = 0
    while nodes.total[0] and (offers.many[1] or following < len(order)):
        best = offers.heap[0]
        if not offers.many[1] or (
            following < len(order) and before(offers, order[following], best)
        ):
            best = order[following]
            following += 1
        else:
            pop(offers)
        job, higher = offers.job[best], offers.level[best]
        more = width[job, higher] - width[job, level[job]]
        if more <= 0:
            continue
        if ground is None:  # compiled without the other branch
            placed = place(nodes, more, gpus[job], grown.taken, at)
        else:
            placed = site(ground.spots, ground.ties, job, more, gpus[job], grown.taken, at)
        if not placed:
            continue
        level[job] = higher
        at += more
        grown.job[steps], grown.ends[steps] = job, at
        steps += 1
        first = offer(offers, job, higher, ranks[job], gpus[job], rest, width)
        for new in range(first, offers.many[0]):
            push(offers, new)
    return steps
