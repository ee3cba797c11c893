# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Elastic one-GPU workers through time, event by event, with `shares.share_loop.allocate` deciding.

One-GPU workers fit wherever a GPU is free, so counting GPUs is exact on named nodes too. Arrays have
one row per job of the trace; `total` is the seconds of the whole job by level, without any cost.
"""

from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.shares.share_arrays import (
    NEWCOMER,
    PROMISED,
    TINY,
    TURNED_AWAY,
    JobArrays,
    RuleParameters,
)
from laxity_scheduler.shares.share_loop import allocate

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
    """The jobs as they are. `active` lists those submitted and unfinished, the first `active_count` of it."""

    left: Floats  # (n,): share still to do
    level: Ints  # (n,)
    ready: Floats  # (n,): trains from then on
    had: Ints  # (n,): levels since the last periodic restart, as bits
    active: Ints  # (n,)
    recent: Floats  # (MOST_PLANS_REMEMBERED,): GPU-seconds of the latest newcomers, each alone
    state: Ints  # (n,): see `shares.share_arrays`
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
    asked: Asked, live: Live, now: float, wake_at: float, arrived: int, active_count: int
) -> float:
    """When something happens next."""
    event_at = wake_at
    if arrived < len(asked.submitted):
        event_at = min(event_at, asked.submitted[arrived])
    for place in range(active_count):
        job = live.active[place]
        if live.level[job] >= 0:
            rest_s = live.left[job] * asked.total[job, live.level[job]]
            event_at = min(event_at, max(now, live.ready[job]) + rest_s)
    return event_at


@jit
def run_until(asked: Asked, live: Live, now: float, at: float, active_count: int) -> int:
    """Let time pass; how many jobs are still active then."""
    still = 0
    for place in range(active_count):
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
        for level in range(asked.levels[job]):
            alone_s = asked.change[job, level] + asked.total[job, level] * asked.factor[job]
            if alone_s <= asked.deadline[job] - now:
                live.recent[planned % MOST_PLANS_REMEMBERED] = alone_s * asked.width[job, level]
                return planned + 1
    return planned


@jit
def view_of(asked: Asked, live: Live, now: float, active_count: int) -> JobArrays:
    """The active jobs as they are believed to be now."""
    levels = asked.total.shape[1]
    due, left, pause = np.empty(active_count), np.empty(active_count), np.empty(active_count)
    total, change = np.empty((active_count, levels)), np.empty((active_count, levels))
    width = np.empty((active_count, levels), dtype=np.int64)
    count, level = np.empty(active_count, dtype=np.int64), np.empty(active_count, dtype=np.int64)
    hard = np.empty(active_count, dtype=np.int64)
    for place in range(active_count):
        job = live.active[place]
        due[place] = asked.deadline[job] - now
        left[place] = live.left[job]
        hard[place] = asked.hard[job]
        pause[place] = max(0.0, live.ready[job] - now)
        count[place], level[place] = asked.levels[job], live.level[job]
        believed = 1.0
        if asked.factor[job] != 1.0:
            epochs_done = np.floor((1.0 - live.left[job]) * asked.epochs[job])
            believed = asked.factor[job] ** (1.0 / (1.0 + epochs_done))
        for column in range(levels):
            total[place, column] = asked.total[job, column] * believed
            change[place, column] = asked.change[job, column]
            width[place, column] = asked.width[job, column]
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
    level = live.level[job]
    bit = 1 << level
    cost_s = pace.round_s
    if periodic:
        live.had[job] = 0
        cost_s = asked.change[job, level] + pace.restart_s
    elif not live.had[job] & bit:
        cost_s = asked.change[job, level]
    live.had[job] |= bit
    live.ready[job] = max(now, live.ready[job]) + cost_s
    live.out[job, LOST] += cost_s * asked.width[job, level]


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
    active_count, events = live.counts[2], live.counts[3]
    row = 0
    while row < len(busy):
        event_at = next_event(asked, live, now, wake_at, arrived, active_count)
        if event_at == np.inf:
            break
        events += 1
        active_count = run_until(asked, live, now, event_at, active_count)
        now, wake_at = event_at, np.inf
        while arrived < jobs and asked.submitted[arrived] <= now:
            live.active[active_count] = arrived
            active_count += 1
            planned = remember(asked, live, arrived, now, planned)
            arrived += 1
        held = 0.0
        if active_count > 0:
            view = view_of(asked, live, now, active_count)
            verdict, target = (
                np.empty(active_count, dtype=np.int64),
                np.empty(active_count, dtype=np.int64),
            )
            for place in range(active_count):
                verdict[place] = live.state[live.active[place]]
            most_paid = pace.kappa * typical(live.recent, planned)
            wake_s = allocate(view, how, most_paid, verdict, target)
            wake_at = now + max(wake_s, 1.0)
            periodic = pace.rounds_between > 0 and events % pace.rounds_between == 0
            active_count, held = carry_out_levels(
                asked, live, view, how, pace, now, periodic, verdict, target
            )
        busy[row, 0], busy[row, 1] = now, held
        row += 1
    live.clock[0], live.clock[1] = now, wake_at
    live.counts[0], live.counts[1], live.counts[2], live.counts[3] = (
        planned,
        arrived,
        active_count,
        events,
    )
    return row
