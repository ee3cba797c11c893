# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Elastic one-GPU workers through time, event by event, with `shares.loop.allocate` deciding.

One-GPU workers fit wherever a GPU is free, so counting GPUs is exact on named nodes too. Arrays have
one row per job of the trace; `total` is the seconds of the whole job by level, without any cost.
"""

from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.shares.arrays import (
    NEWCOMER,
    PROMISED,
    TINY,
    TURNED_AWAY,
    JobArrays,
    RuleParameters,
)
from laxity_scheduler.shares.loop import allocate

FIRST, END, RAN, HELD, LOST, STOPS, CHANGES, PROMISE = range(8)  # columns of `out`
MOST_PLANS_REMEMBERED: Final = 32


class Asked(NamedTuple):
    """The n jobs of a trace on L levels, in order of submission."""

    submitted: Floats  # (n,)
    deadline: Floats  # (n,)
    hard: Ints  # (n,): 1 or 0
    total: Floats  # (n, L)
    width: Ints  # (n, L)
    levels: Ints  # (n,)
    change: Floats  # (n, L)
    factor: Floats  # (n,): believed over true duration
    epochs: Ints  # (n,)


class Pace(NamedTuple):
    """What scheduling rounds cost (`costs`), and the share of the median plan that may be paid."""

    round_s: float
    restart_s: float
    rounds_between: int
    kappa: float


class Live(NamedTuple):
    """The jobs as they are. `active` lists those submitted and unfinished, the first `many` of it."""

    left: Floats  # (n,): share still to do
    level: Ints  # (n,)
    ready: Floats  # (n,): trains from then on
    had: Ints  # (n,): levels since the last periodic restart, as bits
    active: Ints  # (n,)
    recent: Floats  # (MOST_PLANS_REMEMBERED,): GPU-seconds of the latest newcomers, each alone
    state: Ints  # (n,): see `shares.arrays`
    out: Floats  # (n, 8)
    clock: Floats  # (2,): now, and when to wake
    counts: Ints  # (4,): newcomers planned, arrived, active, and events so far


@jit
def typical(recent: Floats, count: int) -> float:
    """The median of the latest newcomers' GPU-times."""
    if count == 0:
        return np.inf
    return float(np.median(recent[: min(count, MOST_PLANS_REMEMBERED)]))


@jit
def next_event(
    asked: Asked, live: Live, now: float, wake_at: float, arrived: int, many: int
) -> float:
    """When something happens next."""
    at = wake_at
    if arrived < len(asked.submitted):
        at = min(at, asked.submitted[arrived])
    for place in range(many):
        job = live.active[place]
        if live.level[job] >= 0:
            rest_s = live.left[job] * asked.total[job, live.level[job]]
            at = min(at, max(now, live.ready[job]) + rest_s)
    return at


@jit
def run_until(asked: Asked, live: Live, now: float, at: float, many: int) -> int:
    """Let time pass; how many jobs are still active then."""
    still = 0
    for place in range(many):
        job = live.active[place]
        if live.level[job] >= 0:
            total_s = asked.total[job, live.level[job]]
            ran_s = at - max(now, live.ready[job])
            if ran_s > 0.0:
                live.left[job] -= ran_s / total_s
            live.out[job, RAN] += at - now
            live.out[job, HELD] += (at - now) * asked.width[job, live.level[job]]
            if live.left[job] * total_s <= TINY:
                live.out[job, END] = at
                live.level[job] = -1
                continue
        live.active[still] = job
        still += 1
    return still


@jit
def remember(asked: Asked, live: Live, job: int, now: float, planned: int) -> int:
    """A newcomer's GPU-time alone, on its narrowest level in time; how many were remembered."""
    if asked.deadline[job] < np.inf:
        for at in range(asked.levels[job]):
            alone_s = asked.change[job, at] + asked.total[job, at] * asked.factor[job]
            if alone_s <= asked.deadline[job] - now:
                live.recent[planned % MOST_PLANS_REMEMBERED] = alone_s * asked.width[job, at]
                return planned + 1
    return planned


@jit
def view_of(asked: Asked, live: Live, now: float, many: int) -> JobArrays:
    """The active jobs as they are believed to be now."""
    levels = asked.total.shape[1]
    due, left, pause = np.empty(many), np.empty(many), np.empty(many)
    total, change = np.empty((many, levels)), np.empty((many, levels))
    width = np.empty((many, levels), dtype=np.int64)
    count, level = np.empty(many, dtype=np.int64), np.empty(many, dtype=np.int64)
    hard = np.empty(many, dtype=np.int64)
    for place in range(many):
        job = live.active[place]
        due[place] = asked.deadline[job] - now
        left[place] = live.left[job]
        hard[place] = asked.hard[job]
        pause[place] = max(0.0, live.ready[job] - now)
        count[place], level[place] = asked.levels[job], live.level[job]
        believed = 1.0
        if asked.factor[job] != 1.0:
            seen = np.floor((1.0 - live.left[job]) * asked.epochs[job])
            believed = asked.factor[job] ** (1.0 / (1.0 + seen))
        for at in range(levels):
            total[place, at] = asked.total[job, at] * believed
            change[place, at] = asked.change[job, at]
            width[place, at] = asked.width[job, at]
    return JobArrays(due, hard, left, total, width, count, level, pause, change)


@jit
def note_promise_end(
    live: Live, view: JobArrays, job: int, place: int, now: float, deadline: float, at: int
) -> None:
    """When a job that was just promised is expected to end."""
    if at >= 0:
        rest_s = view.change[place, at] + view.left[place] * view.total[place, at]
        live.out[job, PROMISE] = now + rest_s
    else:
        live.out[job, PROMISE] = deadline


@jit
def move_job(asked: Asked, live: Live, job: int, at: int, now: float, pace: Pace) -> None:
    """A job starts, stops or changes its level."""
    if live.level[job] >= 0:
        live.out[job, CHANGES if at >= 0 else STOPS] += 1.0
    live.level[job] = at
    if at < 0:
        return
    if pace.round_s == 0.0:
        cost_s = asked.change[job, at]
        live.ready[job] = now + cost_s
        live.out[job, LOST] += cost_s * asked.width[job, at]
    if live.out[job, FIRST] == np.inf:
        live.out[job, FIRST] = now


@jit
def pay_round(asked: Asked, live: Live, job: int, now: float, pace: Pace, periodic: bool) -> None:  # noqa: FBT001
    """What a scheduling round costs a running job."""
    at = live.level[job]
    bit = 1 << at
    cost_s = pace.round_s
    if periodic:
        live.had[job] = 0
        cost_s = asked.change[job, at] + pace.restart_s
    elif not live.had[job] & bit:
        cost_s = asked.change[job, at]
    live.had[job] |= bit
    live.ready[job] = max(now, live.ready[job]) + cost_s
    live.out[job, LOST] += cost_s * asked.width[job, at]


@jit
def carry_out_levels(
    asked: Asked,
    live: Live,
    view: JobArrays,
    how: RuleParameters,
    pace: Pace,
    now: float,
    periodic: bool,  # noqa: FBT001
    given: Ints,
    target: Ints,
) -> tuple[int, float]:
    """What was decided happens: how many jobs stay, and the GPUs that they hold."""
    still, held = 0, 0.0
    for place in range(len(target)):
        job = live.active[place]
        if given[place] == PROMISED and live.state[job] == NEWCOMER:
            note_promise_end(live, view, job, place, now, asked.deadline[job], target[place])
        live.state[job] = given[place]
        if live.state[job] == TURNED_AWAY and how.drops and live.level[job] < 0:
            continue
        if target[place] != live.level[job]:
            move_job(asked, live, job, target[place], now, pace)
        if live.level[job] >= 0:
            held += asked.width[job, live.level[job]]
            if pace.round_s > 0.0:
                pay_round(asked, live, job, now, pace, periodic)
        live.active[still] = job
        still += 1
    return still, held


def beginning(jobs: int, out: Floats, state: Ints) -> Live:
    """Before anything has happened."""
    return Live(
        np.ones(jobs),
        np.full(jobs, -1, dtype=np.int64),
        np.zeros(jobs),
        np.zeros(jobs, dtype=np.int64),
        np.empty(jobs, dtype=np.int64),
        np.zeros(MOST_PLANS_REMEMBERED),
        state,
        out,
        np.array([0.0, np.inf]),
        np.zeros(4, dtype=np.int64),
    )


@jit
def run_shares(asked: Asked, how: RuleParameters, pace: Pace, live: Live, busy: Floats) -> int:
    """Go on from `live` for as many events as `busy` (rows, 2) has rows; how many came. 0: the end."""
    jobs = len(asked.submitted)
    now, wake_at = live.clock[0], live.clock[1]
    planned, arrived = live.counts[0], live.counts[1]
    many, events = live.counts[2], live.counts[3]
    row = 0
    while row < len(busy):
        at = next_event(asked, live, now, wake_at, arrived, many)
        if at == np.inf:
            break
        events += 1
        many = run_until(asked, live, now, at, many)
        now, wake_at = at, np.inf
        while arrived < jobs and asked.submitted[arrived] <= now:
            live.active[many] = arrived
            many += 1
            planned = remember(asked, live, arrived, now, planned)
            arrived += 1
        held = 0.0
        if many > 0:
            view = view_of(asked, live, now, many)
            given, target = np.empty(many, dtype=np.int64), np.empty(many, dtype=np.int64)
            for place in range(many):
                given[place] = live.state[live.active[place]]
            most_paid = pace.kappa * typical(live.recent, planned)
            wake_s = allocate(view, how, most_paid, given, target)
            wake_at = now + max(wake_s, 1.0)
            periodic = pace.rounds_between > 0 and events % pace.rounds_between == 0
            many, held = carry_out_levels(
                asked, live, view, how, pace, now, periodic, given, target
            )
        busy[row, 0], busy[row, 1] = now, held
        row += 1
    live.clock[0], live.clock[1] = now, wake_at
    live.counts[0], live.counts[1], live.counts[2], live.counts[3] = planned, arrived, many, events
    return row
