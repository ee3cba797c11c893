# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Idle GPUs to jobs that start or run: most seconds saved per GPU first.

A heap of (key, rank, level): the key is minus the seconds that a wider level saves per GPU, the rank
a job's place by its id. A job that has grown offers its wider levels anew.
"""

from typing import NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.placement import Ints, Nodes, Rules, site, site_on
from laxity_scheduler.frame.arrays import Ints as Numbers


class Growers(NamedTuple):
    """n jobs on L levels, in order of their ids; level 0 is what each has at first.

    A running job may be tied to its own nodes. `idle` is what claims leave of the cluster by slot of
    time, if it matters: a job may grow if that holds it before slot `ends`.
    """

    level: Ints  # (n,): what each has
    base: Ints  # (n,): from which its gain is counted: a running job re-forms once
    runs: Numbers  # (n,): 1 for those that run
    gpus: Numbers  # (n,): per worker
    width: Numbers  # (n * L,): 0 on no level, and on one that does not pay
    rest: Floats  # (n * L,): seconds to the end
    tied: Ints  # (n + 1,): from where on its own nodes stand in `own`, none: any node
    own: Ints
    ends: Ints  # (n,)
    idle: Ints  # (slots,)
    levels: int


class Offers(NamedTuple):
    """Offers as they were made; the first ones sorted, a heap of the later ones, least first."""

    key: Floats  # (m,)
    job: Numbers  # (m,)
    level: Numbers  # (m,)
    heap: Numbers  # (m,): numbers of offers
    counts: Numbers  # (2,): offers made, and how many of them are in the heap


class Grown(NamedTuple):
    """Who grew, in order, until where in `taken` the nodes reach."""

    taken: Ints
    job: Ints
    ends: Ints


def comes_before(offers: Offers, one: int, other: int) -> bool:
    if offers.key[one] != offers.key[other]:
        return bool(offers.key[one] < offers.key[other])
    if offers.job[one] != offers.job[other]:
        return bool(offers.job[one] < offers.job[other])
    return bool(offers.level[one] < offers.level[other])


def push_offer(offers: Offers, new: int) -> None:
    slot = offers.counts[1]
    while slot and comes_before(offers, new, offers.heap[(slot - 1) // 2]):
        offers.heap[slot] = offers.heap[(slot - 1) // 2]
        slot = (slot - 1) // 2
    offers.heap[slot] = new
    offers.counts[1] += 1


def pop_least(offers: Offers) -> None:
    """Take the least out of the heap."""
    heap, size = offers.heap, offers.counts[1] - 1
    last, slot = heap[size], 0
    offers.counts[1] = size
    while 2 * slot + 1 < size:
        child = 2 * slot + 1
        if child + 1 < size and comes_before(offers, heap[child + 1], heap[child]):
            child += 1
        if not comes_before(offers, heap[child], last):
            break
        heap[slot] = heap[child]
        slot = child
    heap[slot] = last


def add_offers(offers: Offers, jobs: Growers, job: int) -> int:
    """All levels of a job that are wider than what it has; the number of the first of them."""
    first, own = offers.counts[0], job * jobs.levels
    now_s, has = jobs.rest[own + jobs.base[job]], jobs.width[own + jobs.level[job]]
    for level in range(jobs.levels):
        rest_s, more = jobs.rest[own + level], jobs.width[own + level] - has
        if more > 0 and rest_s < now_s:
            new = offers.counts[0]
            offers.key[new] = (rest_s - now_s) / (more * jobs.gpus[job])
            offers.job[new], offers.level[new] = job, level
            offers.counts[0] += 1
    return int(first)


def allocate_offers(most: int) -> Offers:
    """Room for so many offers."""
    return Offers(
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(2, np.int64),
    )


def place_growth(
    nodes: Nodes, rules: Rules, jobs: Growers, job: int, more: int, taken: Ints, begin: int
) -> bool:
    """Places for more workers of a job, if no claim needs these GPUs before they can be given back."""
    gpus = jobs.gpus[job]
    for slot in range(min(jobs.ends[job], len(jobs.idle))):
        if jobs.idle[slot] < more * gpus:
            return False
    first, last = jobs.tied[job], jobs.tied[job + 1]
    if first < last:
        fits = site_on(nodes, rules, job, jobs.own, first, last, more, gpus, taken, begin)
    else:
        fits = site(nodes, rules, job, more, gpus, taken, begin)
    if fits:
        for slot in range(min(jobs.ends[job], len(jobs.idle) - 1)):
            jobs.idle[slot] -= more * gpus
    return fits


def grow(nodes: Nodes, rules: Rules, jobs: Growers, grown: Grown) -> int:
    """Raise the levels of these jobs while GPUs are free. How many steps."""
    job_count, levels = len(jobs.level), jobs.levels
    offers = allocate_offers(job_count * levels * (levels + 1) // 2 + 1)
    for job in range(job_count):
        add_offers(offers, jobs, job)
    order = np.argsort(offers.key[: offers.counts[0]], kind="mergesort")  # then by job and level
    return take_offers(nodes, rules, jobs, grown, offers, order)


def take_offers(
    nodes: Nodes, rules: Rules, jobs: Growers, grown: Grown, offers: Offers, order: Numbers
) -> int:
    """The best offer after the other while GPUs are free: the first ones in this order. How many steps."""
    levels, following, steps, end = jobs.levels, 0, 0, 0
    while nodes.total[0] and (offers.counts[1] or following < len(order)):
        best = int(offers.heap[0])
        if not offers.counts[1] or (
            following < len(order) and comes_before(offers, int(order[following]), best)
        ):
            best = int(order[following])
            following += 1
        else:
            pop_least(offers)
        job, level = int(offers.job[best]), int(offers.level[best])
        more = jobs.width[job * levels + level] - jobs.width[job * levels + jobs.level[job]]
        if more <= 0 or not place_growth(nodes, rules, jobs, job, more, grown.taken, end):
            continue
        jobs.level[job] = level
        if not jobs.runs[job]:
            jobs.base[job] = level
        end += more
        grown.job[steps], grown.ends[steps] = job, end
        steps += 1
        for new in range(add_offers(offers, jobs, job), offers.counts[0]):
            push_offer(offers, new)
    return steps
