# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""The GPUs that are left, given away one (job, next level) step after the other.

A step's key is the GPU-time that it adds per GPU, made non-decreasing along a job's levels, so one
sort of all steps gives the order in which a greedy would take them. Starts come before all growth:
who can be in time first, who runs before who waits, hard before soft before best effort, and then
least GPU-time first.
"""

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.shares.rows import (
    DEAREST,
    TINY,
    TURNED_AWAY,
    Columns,
    RuleParameters,
)

UNKNOWN_GPU_S = 1e11  # of a job of which nothing is known
RANK_GPU_S = 1e12
GROWTH_AFTER_GPU_S = 1e13  # what a step of growth adds per GPU is more than minus this


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
