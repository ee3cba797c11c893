# ruff: noqa: C901, PLR0912, PLR0917 - compiled loops take arrays, by place
"""The loop behind every deadline-elastic policy: who is promised, and how many GPUs each gets now.

    1. each job's least level: the fewest GPUs with which it ends in time, from its scaling curve
    2. if the sum of all least levels fits now it fits always: no time profile is needed (exact)
    3. otherwise free GPUs are kept on 256 slots, 60 s at first, growing by a constant ratio to the
       furthest deadline; a touched slot is taken whole. Promised jobs first, then newcomers
    4. what is left goes step by step to (job, next level), cheapest GPU-time per GPU first

Arrays have one row per job and one column per level of its widths; times are seconds from now.
"""

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Floats
from laxity_scheduler.compiled import jit

Ints = NDArray[np.int64]
SLOTS = 256
FIRST_SLOT_S = 60.0
TINY = 1e-6

# modes, as numbers since loops know no strings
BY_DEADLINE, BY_GPU_TIME = 0, 1
NO_ADMISSION, GREEDY, PRICED = 0, 1, 2
CHEAPEST, DEAREST = 0, 1
NEWCOMER, PROMISED, TURNED_AWAY = 0, 1, 2


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
def rest_s(
    job: int, at: int, left: Floats, total: Floats, level: Ints, pause: Floats, change: Floats
) -> float:
    """Seconds from now to the end of a job that has level `at` from now on."""
    cost = pause[job] if at == level[job] else change[job, at]
    return float(cost + left[job] * total[job, at])


@jit
def least_levels(
    due: Floats,
    left: Floats,
    total: Floats,
    count: Ints,
    level: Ints,
    pause: Floats,
    change: Floats,
    careful: float,
) -> Ints:
    """The smallest level of each job that is in time; -1 where none is. `due`: s from now."""
    jobs = len(due)
    least = np.full(jobs, -1, dtype=np.int64)
    for job in range(jobs):
        for at in range(count[job]):
            cost = pause[job] if at == level[job] else change[job, at]
            if cost + left[job] * total[job, at] * careful <= due[job] + TINY:
                least[job] = at
                break
    return least


@jit
def plan_in(
    job: int,
    most: int,
    start_level: int,
    pause_s: float,
    work: float,
    total: Floats,
    width: Ints,
    change: Floats,
    due_s: float,
    free: Floats,
    lengths: Floats,
    chosen: Ints,
) -> int:
    """Levels by slot with at most `most`, into `chosen`; the number of slots used, -1 if late."""
    at_s, before = 0.0, start_level
    for slot in range(SLOTS):
        length = lengths[slot]
        if at_s >= due_s - TINY:
            return -1
        now_at = -1
        for at in range(most, -1, -1):
            if width[job, at] <= free[slot] + TINY:
                now_at = at
                break
        chosen[slot] = now_at
        if now_at >= 0:
            useful = min(length, due_s - at_s)
            if now_at != before:
                useful -= change[job, now_at]
            elif slot == 0:
                useful -= pause_s
            if useful > 0.0:
                work -= useful / total[job, now_at]
            before = now_at
            if work <= TINY:
                return slot + 1
        else:
            before = -1
        at_s += length
    return -1


@jit
def reserve(job: int, used: int, width: Ints, free: Floats, chosen: Ints) -> None:
    for slot in range(used):
        if chosen[slot] >= 0:
            free[slot] -= width[job, chosen[slot]]


@jit
def price_of(
    job: int,
    used: int,
    width: Ints,
    free: Floats,
    lengths: Floats,
    chosen: Ints,
    gpus: float,
    steep: float,
) -> float:
    """GPU-seconds of a plan, each weighed by how full its slot is: 0 when empty, 1 when full."""
    paid = 0.0
    for slot in range(used):
        if chosen[slot] >= 0:
            full = min(1.0, max(0.0, 1.0 - free[slot] / gpus))
            weight = (np.exp(steep * full) - 1.0) / (np.exp(steep) - 1.0)
            paid += width[job, chosen[slot]] * lengths[slot] * weight
    return paid


@jit
def narrowest_plan(
    job: int,
    due: Floats,
    left: Floats,
    total: Floats,
    width: Ints,
    count: Ints,
    level: Ints,
    pause: Floats,
    change: Floats,
    least: Ints,
    careful: float,
    free: Floats,
    lengths: Floats,
    chosen: Ints,
) -> int:
    """Its plan with the smallest cap that is in time, into `chosen`; slots used, -1 if none."""
    for at in range(least[job], count[job]):
        used = plan_in(
            job,
            at,
            level[job],
            pause[job],
            left[job] * careful,
            total,
            width,
            change,
            due[job],
            free,
            lengths,
            chosen,
        )
        if used >= 0:
            return used
    return -1


@jit
def together(
    newcomer: int,
    by_deadline: Ints,
    holds: Ints,
    due: Floats,
    left: Floats,
    total: Floats,
    width: Ints,
    count: Ints,
    level: Ints,
    pause: Floats,
    change: Floats,
    least: Ints,
    careful: float,
    gpus: float,
    free: Floats,
    lengths: Floats,
    chosen: Ints,
    target: Ints,
) -> bool:
    """Plan all that hold GPUs over time and the newcomer anew, in order of deadline.

    True, with `free` and `target` replaced, if everybody is in time; nothing is changed otherwise.
    """
    trial = np.full(SLOTS, gpus)
    now_at = np.full(len(due), -2, dtype=np.int64)
    for step in range(len(by_deadline)):
        job = by_deadline[step]
        if job != newcomer and not holds[job]:
            continue
        used = narrowest_plan(
            job,
            due,
            left,
            total,
            width,
            count,
            level,
            pause,
            change,
            least,
            careful,
            trial,
            lengths,
            chosen,
        )
        if used < 0:
            return False
        reserve(job, used, width, trial, chosen)
        now_at[job] = chosen[0]
    free[:] = trial
    for job in range(len(due)):
        if now_at[job] > -2:
            target[job] = now_at[job]
    return True


@jit
def base_profile(
    order: Ints,
    due: Floats,
    left: Floats,
    total: Floats,
    width: Ints,
    count: Ints,
    level: Ints,
    pause: Floats,
    change: Floats,
    least: Ints,
    state: Ints,
    gpus: float,
    admission: int,
    most_paid: float,
    steep: float,
    careful: float,
    replans: int,
    target: Ints,
) -> float:
    """Levels now from plans over time, promised jobs first; when a plan has more, in s from now."""
    furthest = 60.0
    for job in range(len(due)):
        target[job] = -1
        if least[job] >= 0 and due[job] < np.inf:
            furthest = max(furthest, due[job])
    lengths = slot_lengths(furthest)
    free = np.full(SLOTS, gpus)
    chosen = np.empty(SLOTS, dtype=np.int64)
    holds = np.zeros(len(due), dtype=np.int64)
    by_deadline = order
    if replans > 0:
        by_deadline = np.argsort(due, kind="mergesort")
    for step in range(len(order)):
        job = order[step]
        newcomer = state[job] == NEWCOMER and due[job] < np.inf and admission != NO_ADMISSION
        if due[job] == np.inf or least[job] < 0:
            if newcomer:
                state[job] = TURNED_AWAY
            continue
        used = narrowest_plan(
            job,
            due,
            left,
            total,
            width,
            count,
            level,
            pause,
            change,
            least,
            careful,
            free,
            lengths,
            chosen,
        )
        if newcomer and used < 0:
            state[job] = TURNED_AWAY
            if replans > 0:
                replans -= 1
                if together(
                    job,
                    by_deadline,
                    holds,
                    due,
                    left,
                    total,
                    width,
                    count,
                    level,
                    pause,
                    change,
                    least,
                    careful,
                    gpus,
                    free,
                    lengths,
                    chosen,
                    target,
                ):
                    state[job], holds[job] = PROMISED, 1
            continue
        if used < 0:
            continue
        if newcomer and admission == PRICED:
            paid = price_of(job, used, width, free, lengths, chosen, gpus, steep)
            if paid > most_paid:
                state[job] = TURNED_AWAY
                continue
        if newcomer:
            state[job] = PROMISED
        holds[job] = 1
        reserve(job, used, width, free, chosen)
        target[job] = chosen[0]
    return next_change_s(holds, target, due, lengths)


@jit
def next_change_s(holds: Ints, target: Ints, due: Floats, lengths: Floats) -> float:
    """When to look again because a plan starts later: the first slot's end, if any waits."""
    for job in range(len(due)):
        if holds[job] and target[job] < 0:
            return float(max(FIRST_SLOT_S, lengths[0]))
    return np.inf


@jit
def base_now(
    order: Ints,
    due: Floats,
    width: Ints,
    least: Ints,
    state: Ints,
    gpus: float,
    admission: int,
    target: Ints,
) -> None:
    """Least levels in order, as long as they fit now; nothing is kept for later."""
    free = gpus
    for step in range(len(order)):
        job = order[step]
        target[job] = -1
        if least[job] >= 0 and width[job, least[job]] <= free + TINY:
            free -= width[job, least[job]]
            target[job] = least[job]
            if state[job] == NEWCOMER and admission != NO_ADMISSION and due[job] < np.inf:
                state[job] = PROMISED
        elif state[job] == NEWCOMER and admission != NO_ADMISSION and due[job] < np.inf:
            state[job] = TURNED_AWAY


@jit
def surplus(
    left: Floats,
    total: Floats,
    width: Ints,
    count: Ints,
    level: Ints,
    pause: Floats,
    change: Floats,
    least: Ints,
    state: Ints,
    target: Ints,
    gpus: float,
    direction: int,
    hopeless_last: int,
    drops: int,
) -> None:
    """Give what is left, one (job, next level) step after the other."""
    free = gpus
    steps = 0
    for job in range(len(left)):
        if target[job] >= 0:
            free -= width[job, target[job]]
        steps += count[job]
    if free < 1.0:
        return
    key = np.empty(steps)
    whose = np.empty(steps, dtype=np.int64)
    goes_to = np.empty(steps, dtype=np.int64)
    comes_from = np.empty(steps, dtype=np.int64)
    found = 0
    for job in range(len(left)):
        if drops and state[job] == TURNED_AWAY:
            continue
        at, highest = target[job], -np.inf
        took_s, held = np.inf, 0.0
        if at >= 0:
            took_s = rest_s(job, at, left, total, level, pause, change)
            held = float(width[job, at])
        for higher in range(at + 1, count[job]):
            then_s = rest_s(job, higher, left, total, level, pause, change)
            if then_s >= took_s - TINY:
                continue
            more = width[job, higher] - held
            if at < 0:
                grows = width[job, higher] * then_s  # starts: least GPU time first
                grows = grows * 1e-9 - 1e12
                if hopeless_last and least[job] < 0:
                    grows += 2e12
                if level[job] >= 0:  # who runs goes on
                    grows -= 1e11
            else:
                grows = (width[job, higher] * then_s - held * took_s) / more
                if direction == DEAREST:
                    grows = -grows
                highest = max(highest, grows)
                grows = highest
            key[found], whose[found] = grows, job
            goes_to[found], comes_from[found] = higher, at
            found += 1
            at, took_s, held = higher, then_s, float(width[job, higher])
    order = np.argsort(key[:found], kind="mergesort")
    for place in range(found):
        step = order[place]
        job = whose[step]
        if target[job] != comes_from[step]:
            continue
        before = width[job, target[job]] if target[job] >= 0 else 0
        more = width[job, goes_to[step]] - before
        if more <= free + TINY:
            free -= more
            target[job] = goes_to[step]


@jit
def allocate(
    due: Floats,
    left: Floats,
    total: Floats,
    width: Ints,
    count: Ints,
    level: Ints,
    pause: Floats,
    change: Floats,
    state: Ints,
    gpus: float,
    order_by: int,
    admission: int,
    reserves: int,
    most_paid: float,
    steep: float,
    direction: int,
    hopeless_last: int,
    careful: float,
    replans: int,
    drops: int,
    target: Ints,
) -> float:
    """Levels now, into `target` (-1: none); `state` says who is promised. Returns when to wake."""
    jobs = len(due)
    least = least_levels(due, left, total, count, level, pause, change, careful)
    needed = 0.0
    key = np.empty(jobs)
    for job in range(jobs):
        if least[job] >= 0:
            needed += width[job, least[job]]
        if order_by == BY_DEADLINE:
            key[job] = due[job]
        elif least[job] >= 0:
            least_s = rest_s(job, least[job], left, total, level, pause, change)
            key[job] = width[job, least[job]] * least_s
        else:
            key[job] = np.inf
        if admission != NO_ADMISSION and state[job] == PROMISED:  # first, and by deadline
            key[job] = (due[job] if reserves else key[job]) - 1e12
        if due[job] == np.inf:
            key[job] = np.inf
    wake_s = np.inf
    if needed <= gpus + TINY and admission != PRICED:
        for job in range(jobs):
            target[job] = least[job]
            if state[job] == NEWCOMER and admission != NO_ADMISSION and due[job] < np.inf:
                state[job] = PROMISED if least[job] >= 0 else TURNED_AWAY
    else:
        order = np.argsort(key, kind="mergesort")
        if reserves:
            wake_s = base_profile(
                order,
                due,
                left,
                total,
                width,
                count,
                level,
                pause,
                change,
                least,
                state,
                gpus,
                admission,
                most_paid,
                steep,
                careful,
                replans,
                target,
            )
        else:
            base_now(order, due, width, least, state, gpus, admission, target)
    surplus(
        left,
        total,
        width,
        count,
        level,
        pause,
        change,
        least,
        state,
        target,
        gpus,
        direction,
        hopeless_last,
        drops,
    )
    return wake_s
