# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Plans over time: who gets how many GPUs in which slot, promised jobs first.

Free GPUs are kept on 256 slots, 60 s at first, growing by a constant ratio to the furthest deadline;
a touched slot is taken whole. A plan takes in each slot the widest level up to a cap that is free,
with the smallest cap that is in time.
"""

from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.shares.rows import (
    NEWCOMER,
    NO_ADMISSION,
    PROMISED,
    TINY,
    TURNED_AWAY,
    Columns,
    RuleParameters,
)

SLOTS: Final = 256
FIRST_SLOT_S: Final = 60.0  # ElasticFlow's slots; theirs do not grow


@jit
def slot_lengths(horizon_s: float) -> Floats:
    """Lengths of the slots from now to the horizon, shape (SLOTS,)."""
    if horizon_s <= SLOTS * FIRST_SLOT_S:
        return np.full(SLOTS, horizon_s / SLOTS)
    low, high = 1.0 + 1e-9, 2.0
    for _ in range(50):
        ratio = (low + high) / 2.0
        if FIRST_SLOT_S * (ratio**SLOTS - 1.0) / (ratio - 1.0) < horizon_s:
            low = ratio
        else:
            high = ratio
    lengths = np.empty(SLOTS)
    length = FIRST_SLOT_S
    for slot in range(SLOTS):
        lengths[slot] = length
        length *= high
    return lengths


@jit
def plan_in(
    jobs: Columns, job: int, most: int, work: float, free: Floats, lengths: Floats, chosen: Ints
) -> int:
    """Levels by slot with at most `most`, into `chosen`; the number of slots used, -1 if late."""
    at_s, before, due_s = 0.0, jobs.level[job], jobs.due[job]
    unpaid_s = jobs.pause[job]  # of a change: longer than a slot, it goes on in the next
    for slot in range(SLOTS):
        length = lengths[slot]
        if at_s >= due_s - TINY:
            return -1
        now_at = -1
        for level in range(most, -1, -1):
            if jobs.width[job, level] <= free[slot] + TINY:
                now_at = level
                break
        chosen[slot] = now_at
        if now_at >= 0:
            if now_at != before:
                unpaid_s = jobs.change[job, now_at]
            useful = min(length, due_s - at_s) - unpaid_s
            unpaid_s = max(0.0, -useful)
            if useful > 0.0:
                work -= useful / jobs.total[job, now_at]
            before = now_at
            if work <= TINY:
                return slot + 1
        else:
            before = -1
        at_s += length
    return -1


@jit
def reserve(jobs: Columns, job: int, used: int, free: Floats, chosen: Ints) -> None:
    for slot in range(used):
        if chosen[slot] >= 0:
            free[slot] -= jobs.width[job, chosen[slot]]


@jit
def narrowest_plan(
    jobs: Columns,
    job: int,
    least: Ints,
    careful: float,
    free: Floats,
    lengths: Floats,
    chosen: Ints,
) -> int:
    """Its plan with the smallest cap that is in time, into `chosen`; slots used, -1 if none."""
    for cap in range(least[job], jobs.levels[job]):
        work = jobs.left[job] * careful
        used = plan_in(jobs, job, cap, work, free, lengths, chosen)
        if used >= 0:
            return used
    return -1


@jit
def together(
    jobs: Columns,
    newcomer: int,
    how: RuleParameters,
    by_deadline: Ints,
    holds: Ints,
    least: Ints,
    free: Floats,
    lengths: Floats,
    chosen: Ints,
    target: Ints,
) -> bool:
    """Plan all that hold GPUs over time and the newcomer anew, in order of deadline.

    True, with `free` and `target` replaced, if everybody is in time; nothing is changed otherwise.
    """
    trial = np.full(SLOTS, how.gpus)
    now_at = np.full(len(jobs.due), -2, dtype=np.int64)
    for step in range(len(by_deadline)):
        job = by_deadline[step]
        if job != newcomer and not holds[job]:
            continue
        used = narrowest_plan(jobs, job, least, how.careful, trial, lengths, chosen)
        if used < 0:
            return False
        reserve(jobs, job, used, trial, chosen)
        now_at[job] = chosen[0]
    free[:] = trial
    for job in range(len(jobs.due)):
        if now_at[job] > -2:
            target[job] = now_at[job]
    return True


@jit
def furthest_deadline_s(jobs: Columns, least: Ints) -> float:
    """Of the jobs that can be in time; at least a minute."""
    furthest = 60.0
    for job in range(len(jobs.due)):
        if least[job] >= 0 and jobs.due[job] < np.inf:
            furthest = max(furthest, jobs.due[job])
    return furthest


@jit
def base_profile(
    jobs: Columns,
    how: RuleParameters,
    order: Ints,
    least: Ints,
    state: Ints,
    target: Ints,
) -> float:
    """Levels now from plans over time, promised jobs first; when a plan has more, in s from now."""
    target[:] = -1
    lengths = slot_lengths(furthest_deadline_s(jobs, least))
    free = np.full(SLOTS, how.gpus)
    chosen = np.empty(SLOTS, dtype=np.int64)
    holds = np.zeros(len(jobs.due), dtype=np.int64)
    replans = how.replans
    by_deadline = order
    if replans > 0:
        by_deadline = np.argsort(jobs.due, kind="mergesort")
    for step in range(len(order)):
        job = order[step]
        due_s = jobs.due[job]
        asks = state[job] == NEWCOMER and due_s < np.inf and how.admission != NO_ADMISSION
        if due_s == np.inf or least[job] < 0:
            if asks:
                state[job] = TURNED_AWAY
            continue
        used = narrowest_plan(jobs, job, least, how.careful, free, lengths, chosen)
        if asks and used < 0:
            state[job] = TURNED_AWAY
            if replans > 0:
                replans -= 1
                if together(
                    jobs, job, how, by_deadline, holds, least, free, lengths, chosen, target
                ):
                    state[job], holds[job] = PROMISED, 1
            continue
        if used < 0:
            continue
        if asks:
            state[job] = PROMISED
        holds[job] = 1
        reserve(jobs, job, used, free, chosen)
        target[job] = chosen[0]
    return next_change_s(holds, target, lengths)


@jit
def next_change_s(holds: Ints, target: Ints, lengths: Floats) -> float:
    """When to look again because a plan starts later: the first slot's end, if any waits."""
    for job in range(len(holds)):
        if holds[job] and target[job] < 0:
            return float(max(FIRST_SLOT_S, lengths[0]))
    return np.inf
