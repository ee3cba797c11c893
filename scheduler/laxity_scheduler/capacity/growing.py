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
    runs: Ints  # (n,): 1 for those that run
    gpus: Ints  # (n,): per worker
    width: Ints  # (n * L,): 0 on no level, and on one that does not pay
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
    many: Numbers  # (2,): offers made, and how many of them are in the heap


class Grown(NamedTuple):
    """Who grew, in order, until where in `taken` the nodes reach."""

    taken: Ints
    job: Ints
    ends: Ints


def before(offers: Offers, one: int, other: int) -> bool:
    if offers.key[one] != offers.key[other]:
        return bool(offers.key[one] < offers.key[other])
    if offers.job[one] != offers.job[other]:
        return bool(offers.job[one] < offers.job[other])
    return bool(offers.level[one] < offers.level[other])


def push(offers: Offers, new: int) -> None:
    at = offers.many[1]
    while at and before(offers, new, offers.heap[(at - 1) // 2]):
        offers.heap[at] = offers.heap[(at - 1) // 2]
        at = (at - 1) // 2
    offers.heap[at] = new
    offers.many[1] += 1


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


def offer(offers: Offers, jobs: Growers, job: int) -> int:
    """All levels of a job that are wider than what it has; the number of the first of them."""
    first, own = offers.many[0], job * jobs.levels
    now_s, has = jobs.rest[own + jobs.base[job]], jobs.width[own + jobs.level[job]]
    for level in range(jobs.levels):
        rest_s, more = jobs.rest[own + level], jobs.width[own + level] - has
        if more > 0 and rest_s < now_s:
            new = offers.many[0]
            offers.key[new] = (rest_s - now_s) / (more * jobs.gpus[job])
            offers.job[new], offers.level[new] = job, level
            offers.many[0] += 1
    return int(first)


def offers_of(most: int) -> Offers:
    """Room for so many offers."""
    return Offers(
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.zeros(most, np.int64),
        np.zeros(2, np.int64),
    )


def placed(
    nodes: Nodes, rules: Rules, jobs: Growers, job: int, more: int, taken: Ints, at: int
) -> bool:
    """Places for more workers of a job, if no claim needs these GPUs before they can be given back."""
    gpus = jobs.gpus[job]
    for slot in range(min(jobs.ends[job], len(jobs.idle))):
        if jobs.idle[slot] < more * gpus:
            return False
    own = jobs.own[jobs.tied[job] : jobs.tied[job + 1]]
    if len(own):
        found = site_on(nodes, rules, job, own, more, gpus, taken, at)
    else:
        found = site(nodes, rules, job, more, gpus, taken, at)
    if found:
        for slot in range(min(jobs.ends[job], len(jobs.idle) - 1)):
            jobs.idle[slot] -= more * gpus
    return found


def grow(nodes: Nodes, rules: Rules, jobs: Growers, grown: Grown) -> int:
    """Raise the levels of these jobs while GPUs are free. How many steps."""
    many, levels = len(jobs.level), jobs.levels
    offers, steps, at = offers_of(many * levels * (levels + 1) // 2 + 1), 0, 0
    for job in range(many):
        offer(offers, jobs, job)
    order = np.argsort(offers.key[: offers.many[0]], kind="mergesort")  # then by job and level
    following = 0
    while nodes.total[0] and (offers.many[1] or following < len(order)):
        best = int(offers.heap[0])
        if not offers.many[1] or (
            following < len(order) and before(offers, int(order[following]), best)
        ):
            best = int(order[following])
            following += 1
        else:
            pop(offers)
        job, level = int(offers.job[best]), int(offers.level[best])
        more = jobs.width[job * levels + level] - jobs.width[job * levels + jobs.level[job]]
        if more <= 0 or not placed(nodes, rules, jobs, job, more, grown.taken, at):
            continue
        jobs.level[job] = level
        if not jobs.runs[job]:
            jobs.base[job] = level
        at += more
        grown.job[steps], grown.ends[steps] = job, at
        steps += 1
        for new in range(offer(offers, jobs, job), offers.many[0]):
            push(offers, new)
    return steps
