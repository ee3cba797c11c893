# ruff: noqa: C901, PLR0912, PLR0915, PLR0917 - compiled loops take arrays, by place
"""Elastic one-GPU workers through time, event by event, with `shares_loop.allocate` deciding.

One-GPU workers fit wherever a GPU is free, so counting GPUs is exact on named nodes too. Arrays have
one row per job of the trace; `total` is the seconds of the whole job by level, without any cost.
"""

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.compiled import jit
from laxity_scheduler.shares_loop import NEWCOMER, PROMISED, TINY, TURNED_AWAY, Ints, allocate

FIRST, END, RAN, HELD, LOST, STOPS, CHANGES, PROMISE = range(8)  # columns of `out`
MOST_PLANS_REMEMBERED = 32


@jit
def typical(recent: Floats, count: int) -> float:
    """The median of the latest newcomers' GPU-times."""
    if count == 0:
        return np.inf
    return float(np.median(recent[: min(count, MOST_PLANS_REMEMBERED)]))


@jit
def run_shares(
    submitted: Floats,
    deadline: Floats,
    total: Floats,
    width: Ints,
    count: Ints,
    change: Floats,
    factor: Floats,
    epochs: Ints,
    gpus: float,
    order_by: int,
    admission: int,
    reserves: int,
    kappa: float,
    steep: float,
    direction: int,
    hopeless_last: int,
    careful: float,
    replans: int,
    drops: int,
    round_s: float,
    restart_s: float,
    rounds_between: int,
    out: Floats,
    state: Ints,
    busy: Floats,
) -> tuple[int, int]:
    """Fill `out` (n, 8), `state` (n,) and `busy` (2 x events, 2); how many events and busy rows."""
    jobs, levels = total.shape
    left = np.ones(jobs)
    level = np.full(jobs, -1, dtype=np.int64)
    ready = np.zeros(jobs)
    had = np.zeros(jobs, dtype=np.int64)
    active = np.empty(jobs, dtype=np.int64)
    recent = np.zeros(MOST_PLANS_REMEMBERED)
    now, wake_at, planned = 0.0, np.inf, 0
    arrived, many, events, rows = 0, 0, 0, 0
    while True:
        at = wake_at
        if arrived < jobs:
            at = min(at, submitted[arrived])
        for place in range(many):
            job = active[place]
            if level[job] >= 0:
                at = min(at, max(now, ready[job]) + left[job] * total[job, level[job]])
        if at == np.inf:
            break
        events += 1
        # what happened meanwhile
        still = 0
        for place in range(many):
            job = active[place]
            if level[job] >= 0:
                ran_s = at - max(now, ready[job])
                if ran_s > 0.0:
                    left[job] -= ran_s / total[job, level[job]]
                out[job, RAN] += at - now
                out[job, HELD] += (at - now) * width[job, level[job]]
                if left[job] * total[job, level[job]] <= TINY:
                    out[job, END] = at
                    level[job] = -1
                    continue
            active[still] = job
            still += 1
        many, now, wake_at = still, at, np.inf
        while arrived < jobs and submitted[arrived] <= now:
            active[many] = arrived
            many += 1
            if deadline[arrived] < np.inf:
                for at_level in range(count[arrived]):
                    alone_s = change[arrived, at_level] + total[arrived, at_level] * factor[arrived]
                    if alone_s <= deadline[arrived] - now:
                        work = alone_s * width[arrived, at_level]
                        recent[planned % MOST_PLANS_REMEMBERED] = work
                        planned += 1
                        break
            arrived += 1
        if many == 0:
            busy[rows, 0], busy[rows, 1] = now, 0.0
            rows += 1
            continue
        # what is decided
        due, view_left = np.empty(many), np.empty(many)
        pause = np.empty(many)
        view_total, view_change = np.empty((many, levels)), np.empty((many, levels))
        view_width = np.empty((many, levels), dtype=np.int64)
        view_count, view_level = np.empty(many, dtype=np.int64), np.empty(many, dtype=np.int64)
        view_state, target = np.empty(many, dtype=np.int64), np.empty(many, dtype=np.int64)
        for place in range(many):
            job = active[place]
            due[place] = deadline[job] - now
            view_left[place] = left[job]
            pause[place] = max(0.0, ready[job] - now)
            view_count[place], view_level[place] = count[job], level[job]
            view_state[place] = state[job]
            believed = 1.0
            if factor[job] != 1.0:
                seen = np.floor((1.0 - left[job]) * epochs[job])
                believed = factor[job] ** (1.0 / (1.0 + seen))
            for column in range(levels):
                view_total[place, column] = total[job, column] * believed
                view_change[place, column] = change[job, column]
                view_width[place, column] = width[job, column]
        wake_s = allocate(
            due,
            view_left,
            view_total,
            view_width,
            view_count,
            view_level,
            pause,
            view_change,
            view_state,
            gpus,
            order_by,
            admission,
            reserves,
            kappa * typical(recent, planned),
            steep,
            direction,
            hopeless_last,
            careful,
            replans,
            drops,
            target,
        )
        wake_at = now + max(wake_s, 1.0)
        # what it comes to
        periodic = rounds_between > 0 and events % rounds_between == 0
        still, held = 0, 0.0
        for place in range(many):
            job = active[place]
            if view_state[place] == PROMISED and state[job] == NEWCOMER and target[place] >= 0:
                at_level = target[place]
                rest = view_change[place, at_level] + view_left[place] * view_total[place, at_level]
                out[job, PROMISE] = now + rest
            elif view_state[place] == PROMISED and state[job] == NEWCOMER:
                out[job, PROMISE] = deadline[job]
            state[job] = view_state[place]
            if state[job] == TURNED_AWAY and drops and level[job] < 0:
                continue
            if target[place] != level[job]:
                if level[job] >= 0:
                    if target[place] >= 0:
                        out[job, CHANGES] += 1.0
                    else:
                        out[job, STOPS] += 1.0
                level[job] = target[place]
                if level[job] >= 0 and round_s == 0.0:
                    cost = change[job, level[job]]
                    ready[job] = now + cost
                    out[job, LOST] += cost * width[job, level[job]]
                if out[job, FIRST] == np.inf and level[job] >= 0:
                    out[job, FIRST] = now
            if level[job] >= 0:
                held += width[job, level[job]]
                if round_s > 0.0:
                    bit = 1 << level[job]
                    cost = round_s
                    if periodic:
                        had[job] = 0
                        cost = change[job, level[job]] + restart_s
                    elif not had[job] & bit:
                        cost = change[job, level[job]]
                    had[job] |= bit
                    ready[job] = max(now, ready[job]) + cost
                    out[job, LOST] += cost * width[job, level[job]]
            active[still] = job
            still += 1
        many = still
        busy[rows, 0], busy[rows, 1] = now, held
        rows += 1
    return events, rows
