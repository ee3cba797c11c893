"""GPUs that nobody waits for go to the jobs that gain most seconds per GPU by them."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.growing import Growers
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import EXTRA, RESUMED_AT, WIDTH, WORKERS
from laxity_scheduler.model.decision import Resize
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.promising.reserve import Profile
from laxity_scheduler.qos.bargain import Bargain
from laxity_scheduler.qos.spreading import waited_for

Levels = tuple[Ints, Floats]  # widths, of which 0 is none, and seconds to the end; (n, L)


def grow_into_idle(bargain: Bargain) -> None:
    """Widen those that start, and running ones whose width may change now."""
    taken = waited_for(bargain)
    if taken is None or not bargain.ledger.total_free:
        return
    starting = [start.waiting.job for start in bargain.starts.values()]
    running = [job for job in _may_grow(bargain) if taken.isdisjoint(job.nodes) or bargain.grows]
    jobs, rest = [*starting, *running], None
    held_s = [0.0] * len(jobs)
    if not bargain.reservations.roomy:
        rest = bargain.reservations.profile()
        held_s = [_held_s(bargain, job) for job in jobs]
    known = [one for one in zip(jobs, held_s, strict=True) if one[1] < FOREVER]
    if known:
        known.sort(key=lambda one: one[0].id)
        jobs, held_s = [job for job, _ in known], [job_s for _, job_s in known]
        growers = _growers(bargain, jobs, _levels(bargain, jobs), rest, held_s)
        rules = bargain.sites.rules(bargain.ledger, jobs, held_s, claimed=False, without=taken)
        for at, level, more in bargain.ledger.grow(growers, rules):
            _widen(bargain, jobs[at], growers.width[at * growers.levels + level], more)


def _may_grow(bargain: Bargain) -> list[Job]:
    """Running jobs whose width may change now, but those that plainly have their widest one."""
    frame, found = bargain.forecasts.frame, []
    widest = frame.plain & (frame.widest <= frame.column(WORKERS))
    just = frame.column(RESUMED_AT) >= bargain.now
    for job in frame.where((frame.column(WORKERS) > 0.0) & (~widest | just)):
        if (
            len(job.widths) > 1
            and bargain.formed(job)
            and bargain.forecasts.curve(job).widths[-1] > job.workers
            and _has_room(bargain, job)
        ):
            bargain.wake(bargain.cooled_at(job))
            if bargain.cooled_at(job) <= bargain.now:
                found.append(job)
    return found


def _has_room(bargain: Bargain, job: Job) -> bool:
    free_on = bargain.ledger.free_on
    return bargain.grows or any(free_on(node) >= job.gpus_per_worker for node in job.nodes)


def _held_s(bargain: Bargain, job: Job) -> float:
    """How long a job holds further workers until it can give them back."""
    curve = bargain.forecasts.curve(job)
    return curve.start_s(curve.least, "p90") + 2.0 * curve.epoch_s(curve.least, "p90")


def _levels(bargain: Bargain, jobs: Sequence[Job]) -> Levels:
    """What each has first, then all levels that are worth having; of running jobs, those that pay."""
    frame, forecasts = bargain.forecasts.frame, bargain.forecasts
    rows = frame.known_rows(jobs)
    width = frame.levels("mean")[rows, WIDTH, :-EXTRA]
    width = np.where(np.isfinite(width), width, 0.0).astype(np.int64)
    ends_s = frame.by_level_s(rows, "mean")
    held = [job.workers or bargain.starts[job.id].workers for job in jobs]
    own = (width == np.array(held, dtype=np.int64)[:, None]).argmax(axis=1)
    own_s = ends_s[np.arange(len(jobs)), own]
    for row, job in enumerate(jobs):
        if job.workers:
            own_s[row] = forecasts.rest_s(job, job.workers, "mean")
            paying = [
                one > job.workers and pays(bargain, job, one) for one in forecasts.curve(job).widths
            ]
            width[row, : len(paying)] *= paying
    return np.column_stack([held, width]), np.column_stack([own_s, ends_s])


def _growers(
    bargain: Bargain,
    jobs: Sequence[Job],
    levels: Levels,
    rest: Profile | None,
    held_s: Sequence[float],
) -> Growers:
    width, ends_s = levels
    own = [
        bargain.ledger.numbers(job.nodes) if job.workers and not bargain.grows else []
        for job in jobs
    ]
    return Growers(
        level=[0] * len(jobs),
        base=[0] * len(jobs),
        runs=[int(job.workers > 0) for job in jobs],
        gpus=[job.gpus_per_worker for job in jobs],
        width=width.ravel().tolist(),
        rest=ends_s.ravel(),
        tied=[0, *accumulate(map(len, own))],
        own=[number for numbers in own for number in numbers],
        ends=[0 if rest is None else rest.end(job_s) for job_s in held_s],
        idle=[] if rest is None else rest.free.astype(np.int64).tolist(),
        levels=width.shape[1],
    )


def _widen(bargain: Bargain, job: Job, width: int, more: tuple[str, ...]) -> None:
    start = bargain.starts.get(job.id)
    if start is not None:
        start.workers, start.nodes = width, start.nodes + more
        start.reason = start.reason.on_workers(width)
        return
    saved_s = bargain.forecasts.rest_s(job, job.workers, "mean")
    saved_s -= bargain.forecasts.rest_s(job, width, "mean")
    why = reason("grow_into_idle", from_workers=job.workers, workers=width, saved_s=saved_s)
    bargain.change(Resize(job.id, width, job.nodes + more, "now", why))


def pays(bargain: Bargain, job: Job, width: int) -> bool:
    """Hysteresis: re-forming is cheap against what it saves, and a restart's time is left."""
    forecasts, curve = bargain.forecasts, bargain.forecasts.curve(job)
    now_s = forecasts.rest_s(job, job.workers, "mean")
    saved_s = now_s - forecasts.rest_s(job, width, "mean")
    cost_s = curve.reform_s(width, "mean")
    return (
        saved_s > 0.0
        and cost_s < bargain.rules.scale_share * (saved_s + cost_s)
        and (now_s > curve.start_s(width, "mean"))
    )
