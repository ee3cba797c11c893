# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""The loop behind every deadline-elastic policy: who is promised, and how many GPUs each gets now.

1. each job's least level: the fewest GPUs with which it ends in time, from its scaling curve
2. if the sum of all least levels fits now it fits always: no time profile is needed (exact)
3. otherwise plans over time are made, promised jobs first, then newcomers (`shares.plans`)
4. what is left goes step by step to (job, next level), cheapest GPU-time per GPU first
   (`surplus`)

A step's key is the GPU-time that it adds per GPU, made non-decreasing along a job's levels, so one
sort of all steps gives the order in which a greedy would take them. Starts come before all growth:
who can be in time first, who runs before who waits, hard before soft before best effort, and then
least GPU-time first.
"""

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.shares.plans import base_profile
from laxity_scheduler.shares.rows import (
    DEAREST,
    NEWCOMER,
    NO_ADMISSION,
    PROMISED,
    TINY,
    TURNED_AWAY,
    Columns,
    RuleParameters,
)

UNKNOWN_GPU_S = 1e11  # of a job of which nothing is known
RANK_GPU_S = 1e12
GROWTH_AFTER_GPU_S = 1e13  # what a step of growth adds per GPU is more than minus this
SOFT_AFTER = 1e12  # more than any deadline


@jit
def rest_s(jobs: Columns, job: int, at: int) -> float:
    """Seconds from now to the end of a job that has level `at` from now on."""
    cost = jobs.pause[job] if at == jobs.level[job] else jobs.change[job, at]
    return float(cost + jobs.left[job] * jobs.total[job, at])


@jit
def start_key(jobs: Columns, job: int, gpu_s: float, hopeless: bool) -> float:  # noqa: FBT001
    """Where a start stands among all steps."""
    rank = 4.0 if hopeless else 0.0
    if jobs.level[job] < 0:  # who runs goes on
        rank += 1.0 if jobs.hard[job] else 2.0 if jobs.due[job] < np.inf else 3.0
    return rank * RANK_GPU_S - GROWTH_AFTER_GPU_S + min(gpu_s, UNKNOWN_GPU_S)


@jit
def steps_of(
    jobs: Columns,
    job: int,
    how: RuleParameters,
    base: int,
    hopeless: bool,  # noqa: FBT001
    count: int,
    key: Floats,
    step: Ints,
) -> int:
    """Append a job's steps from level `base` on: (key), (job, from, to). How many there are then."""
    level, highest = base, -np.inf
    took_s, held = np.inf, 0.0
    if level >= 0:
        took_s = rest_s(jobs, job, level)
        held = float(jobs.width[job, level])
    for higher in range(level + 1, jobs.levels[job]):
        then_s = rest_s(jobs, job, higher)
        unknown = (
            level < 0 and higher == 0 and then_s == np.inf
        )  # starts all the same, after others
        if then_s >= took_s - TINY and not unknown:
            continue
        more = jobs.width[job, higher] - held
        if level < 0:
            grows = start_key(jobs, job, jobs.width[job, higher] * then_s, hopeless)
        else:
            grows = (jobs.width[job, higher] * then_s - held * took_s) / more
            if how.direction == DEAREST:
                grows = -grows
            highest = max(highest, grows)
            grows = highest
        key[count] = grows
        step[count, 0], step[count, 1], step[count, 2] = job, level, higher
        count += 1
        level, took_s, held = higher, then_s, float(jobs.width[job, higher])
    return count


@jit
def surplus(jobs: Columns, how: RuleParameters, least: Ints, state: Ints, target: Ints) -> None:
    """Give what is left, one (job, next level) step after the other."""
    free = how.gpus
    steps = 0
    for job in range(len(jobs.left)):
        if target[job] >= 0:
            free -= jobs.width[job, target[job]]
        steps += jobs.levels[job]
    if free < 1.0:
        return
    key = np.empty(steps)
    step = np.empty((steps, 3), dtype=np.int64)
    count = 0
    for job in range(len(jobs.left)):
        if how.drops and state[job] == TURNED_AWAY:
            continue
        hopeless = least[job] < 0
        count = steps_of(jobs, job, how, target[job], hopeless, count, key, step)
    order = np.argsort(key[:count], kind="mergesort")
    for place in range(count):
        row = order[place]
        job, goes_to = step[row, 0], step[row, 2]
        if target[job] != step[row, 1]:
            continue
        before = jobs.width[job, target[job]] if target[job] >= 0 else 0
        more = jobs.width[job, goes_to] - before
        if more <= free + TINY:
            free -= more
            target[job] = goes_to


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
