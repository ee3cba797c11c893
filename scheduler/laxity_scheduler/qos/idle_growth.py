"""GPUs that nobody waits for go to the jobs that gain most seconds per GPU by them."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.growing import Growers
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import EXTRA, RESUMED_AT, SIZE, WIDTH, WORKERS
from laxity_scheduler.model.decision import Resize
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.promising.reserve import Profile, find_end
from laxity_scheduler.qos.context import DecisionContext

SCALE_SHARE: Final = 0.10  # re-forming may cost at most this share of what it saves

Levels = tuple[Ints, Floats]  # widths, of which 0 is none, and seconds to the end; (n, L)


def grow_into_idle(context: DecisionContext) -> None:
    """Widen those that start, and running ones whose width may change now."""
    taken = _find_awaited_nodes(context)
    if taken is None or not context.ledger.total_free:
        return
    starting = [start.waiting.job for start in context.starts.values()]
    running = [job for job in _may_grow(context) if taken.isdisjoint(job.nodes) or context.grows]
    jobs, rest = [*starting, *running], None
    held_s = [0.0] * len(jobs)
    if not context.reservations.roomy:
        rest = context.reservations.profile()
        held_s = [_hold_s(context, job) for job in jobs]
    mine = [row for row, job_s in enumerate(held_s) if job_s < FOREVER]
    if mine:
        frame = context.forecasts.frame
        rows = frame.row_numbers(jobs)
        mine.sort(key=frame.ranks[rows].tolist().__getitem__)  # by id
        jobs, held_s = [jobs[row] for row in mine], [held_s[row] for row in mine]
        rows = rows[mine]
        growers = _growers(context, jobs, rows, rest, held_s)
        rules = context.placement.rules(context.ledger, jobs, held_s, claimed=False, without=taken)
        for row, level, more in context.ledger.grow(growers, rules, [job.needs for job in jobs]):
            _widen(context, jobs[row], int(growers.width[row * growers.levels + level]), more)


def _find_awaited_nodes(context: DecisionContext) -> frozenset[str] | None:
    """The nodes that those who wait may use; None: all."""
    nodes: frozenset[str] = frozenset()
    for entry in context.blocked:
        may = context.state.eligible_nodes(entry.job)
        if may is None:
            return None
        nodes |= may
    return nodes


def _may_grow(context: DecisionContext) -> list[Job]:
    """Running jobs whose width may change now, but those that plainly have their widest one."""
    frame, jobs = context.forecasts.frame, []
    widest = frame.plain & (frame.widest <= frame.column(WORKERS))
    just = frame.column(RESUMED_AT) >= context.now
    for job in frame.where((frame.column(WORKERS) > 0.0) & (~widest | just)):
        if (
            len(job.widths) > 1
            and context.is_formed(job)
            and context.forecasts.curve(job).widths[-1] > job.workers
            and _has_room(context, job)
        ):
            context.wake(context.cooldown_end_at(job))
            if context.cooldown_end_at(job) <= context.now:
                jobs.append(job)
    return jobs


def _has_room(context: DecisionContext, job: Job) -> bool:
    free_on = context.ledger.free_on
    return context.grows or any(free_on(node) >= job.gpus_per_worker for node in job.nodes)


def _hold_s(context: DecisionContext, job: Job) -> float:
    """How long a job holds further workers until it can give them back."""
    curve = context.forecasts.curve(job)
    return curve.start_s(curve.least, "p90") + 2.0 * curve.epoch_s(curve.least, "p90")


def _levels(context: DecisionContext, jobs: Sequence[Job], rows: Ints) -> Levels:
    """What each has first, then all levels that are worth having; of running jobs, those that pay."""
    frame, forecasts = context.forecasts.frame, context.forecasts
    width = frame.levels("mean")[rows, WIDTH, :-EXTRA]
    width = np.where(np.isfinite(width), width, 0.0).astype(np.int64)
    ends_s = frame.by_level_s(rows, "mean")
    held, starts = frame.column(WORKERS)[rows].astype(np.int64), context.starts
    running = np.flatnonzero(held).tolist()
    starting = np.flatnonzero(held == 0)
    held[starting] = [starts[jobs[row].id].workers for row in starting.tolist()]
    own = (width == held[:, None]).argmax(axis=1)
    own_s = ends_s[np.arange(len(jobs)), own]
    for row in running:
        job = jobs[row]
        own_s[row] = forecasts.rest_s(job, job.workers, "mean")
        paying = [
            wider > job.workers and pays(context, job, wider)
            for wider in forecasts.curve(job).widths
        ]
        width[row, : len(paying)] *= paying
    return np.column_stack([held, width]), np.column_stack([own_s, ends_s])


def _growers(
    context: DecisionContext,
    jobs: Sequence[Job],
    rows: Ints,
    rest: Profile | None,
    held_s: Sequence[float],
) -> Growers:
    column, (width, ends_s) = context.forecasts.frame.column, _levels(context, jobs, rows)
    parts, anywhere = context.reservations.room.whole_parts, list[int]()
    own = [
        context.ledger.numbers(job.nodes) if job.workers and not context.grows else anywhere
        for job in jobs
    ]
    return Growers(
        level=[0] * len(jobs),
        base=[0] * len(jobs),
        runs=(column(WORKERS)[rows] > 0.0).astype(np.int64),
        gpus=column(SIZE)[rows].astype(np.int64),
        width=width.ravel(),
        rest=ends_s.ravel(),
        tied=[0, *accumulate(map(len, own))],
        own=[number for numbers in own for number in numbers],
        ends=[0 if rest is None else find_end(rest, job_s) for job_s in held_s],
        idle=[] if rest is None else rest.parts[parts].min(axis=0).astype(np.int64).tolist(),
        levels=width.shape[1],
    )


def _widen(context: DecisionContext, job: Job, width: int, more: tuple[str, ...]) -> None:
    start = context.starts.get(job.id)
    if start is not None:
        start.workers, start.nodes = width, start.nodes + more
        return
    saved_s = context.forecasts.rest_s(job, job.workers, "mean")
    saved_s -= context.forecasts.rest_s(job, width, "mean")
    growth_reason = reason(
        "grow_into_idle", from_workers=job.workers, workers=width, saved_s=saved_s
    )
    context.change(Resize(job.id, width, job.nodes + more, "now", growth_reason))


def pays(context: DecisionContext, job: Job, width: int) -> bool:
    """Hysteresis: re-forming is cheap against what it saves, and a restart's time is left."""
    forecasts, curve = context.forecasts, context.forecasts.curve(job)
    now_s = forecasts.rest_s(job, job.workers, "mean")
    saved_s = now_s - forecasts.rest_s(job, width, "mean")
    cost_s = curve.reform_s(width, "mean")
    return (
        saved_s > 0.0
        and cost_s < SCALE_SHARE * (saved_s + cost_s)
        and (now_s > curve.start_s(width, "mean"))
    )
