# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""The loop behind every deadline-elastic policy: who is promised, and how many GPUs each gets now.

1. each job's least level: the fewest GPUs with which it ends in time, from its scaling curve
2. if the sum of all least levels fits now it fits always: no time profile is needed (exact)
3. otherwise plans over time are made, promised jobs first, then newcomers (`shares.plans`)
4. what is left goes step by step to (job, next level), cheapest GPU-time per GPU first
   (`shares.share_surplus`)
"""

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.shares.plans import base_profile
from laxity_scheduler.shares.rows import (
    NEWCOMER,
    NO_ADMISSION,
    PROMISED,
    TINY,
    TURNED_AWAY,
    Columns,
    RuleParameters,
)
from laxity_scheduler.shares.share_surplus import surplus

SOFT_AFTER = 1e12  # more than any deadline


@jit
def least_levels(jobs: Columns, careful: float) -> Ints:
    """The smallest level of each job that is in time; -1 where none is."""
    least = np.full(len(jobs.due), -1, dtype=np.int64)
    for job in range(len(jobs.due)):
        for level in range(jobs.levels[job]):
            cost = jobs.pause[job] if level == jobs.level[job] else jobs.change[job, level]
            if cost + jobs.left[job] * jobs.total[job, level] * careful <= jobs.due[job] + TINY:
                least[job] = level
                break
    return least


@jit
def keys_of(jobs: Columns, how: RuleParameters, state: Ints) -> Floats:
    """In which order shares are given: by deadline, promised jobs first, then hard ones."""
    key = jobs.due.copy()
    for job in range(len(jobs.due)):
        if not jobs.hard[job]:
            key[job] += SOFT_AFTER
        if how.admission != NO_ADMISSION and state[job] == PROMISED:
            key[job] = (jobs.due[job] if how.reserves else key[job]) - 2.0 * SOFT_AFTER
        if jobs.due[job] == np.inf:
            key[job] = np.inf
    return key


@jit
def everybody(jobs: Columns, how: RuleParameters, least: Ints, state: Ints, target: Ints) -> None:
    """All have their least level at once."""
    for job in range(len(jobs.due)):
        target[job] = least[job]
        asks = state[job] == NEWCOMER and how.admission != NO_ADMISSION
        if asks and jobs.due[job] < np.inf:
            state[job] = PROMISED if least[job] >= 0 else TURNED_AWAY


@jit
def base_now(
    jobs: Columns, how: RuleParameters, order: Ints, least: Ints, state: Ints, target: Ints
) -> None:
    """Least levels in order, as long as they fit now; nothing is kept for later."""
    free = how.gpus
    for step in range(len(order)):
        job = order[step]
        target[job] = -1
        asks = state[job] == NEWCOMER and how.admission != NO_ADMISSION
        asks = asks and jobs.due[job] < np.inf
        if least[job] >= 0 and jobs.width[job, least[job]] <= free + TINY:
            free -= jobs.width[job, least[job]]
            target[job] = least[job]
            if asks:
                state[job] = PROMISED
        elif asks:
            state[job] = TURNED_AWAY


@jit
def allocate(jobs: Columns, how: RuleParameters, state: Ints, target: Ints) -> float:
    """Levels now, into `target` (-1: none); `state` says who is promised. Returns when to wake."""
    least = least_levels(jobs, how.careful)
    needed = 0.0
    for job in range(len(jobs.due)):
        if least[job] >= 0:
            needed += jobs.width[job, least[job]]
    wake_s = np.inf
    if needed <= how.gpus + TINY:
        everybody(jobs, how, least, state, target)
    else:
        order = np.argsort(keys_of(jobs, how, state), kind="mergesort")
        if how.reserves:
            wake_s = base_profile(jobs, how, order, least, state, target)
        else:
            base_now(jobs, how, order, least, state, target)
    surplus(jobs, how, least, state, target)
    return wake_s
