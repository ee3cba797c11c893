"""What jobs are told of their ends: promises and forecasts, new ones and those that changed.

New promises are said as they will be carried out; old ones that moved, are in danger, saved or broken.
Forecasts go to all who ask and get no promise, and again where what was told has changed: of soft jobs
that is a move; of others that wait, a start behind the finish that they were told.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints, construct_many
from laxity_scheduler.frame.fields import (
    ASKED,
    HARD,
    LEFT,
    PROMISED_DUE_AT,
    PROMISED_P90_AT,
    SERVICE,
    SOFT,
    STOPPING,
    SUBMITTED_AT,
    TROUBLED,
    WAITING,
    WANTS,
    WIDTH,
    WORKERS,
)
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.decision import Forecasted, Preempt, Promised, Refuse, Resize
from laxity_scheduler.model.job import FOREVER, Forecast, Job, PendingPromise, Promise
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.promising.promise import forecasts_of, promises_of
from laxity_scheduler.promising.reserve import Profile, Share, ShareTable
from laxity_scheduler.qos.context import MOVED, DecisionContext

IN_TIME: Final = frozenset({"fits", "fits_when_nodes_come", "promise_moved"})
NO_DANGER_S: Final = 0.5  # of lateness that nobody would see


class Outlook(NamedTuple):
    """How n promised jobs go on, if all goes as predicted; columns (n,)."""

    rows: Ints
    jobs: list[Job]
    due_at: Floats
    given: Bools  # promised in this decision
    workers: Ints  # the width that each starts on, has or is to have; 0: it waits
    finish_s: Floats
    planned: Bools  # it goes on as all claims are planned together, not on that width
    tolerance_s: Floats  # it may be late by so much

    def shares(self, places: Ints, known: ShareTable) -> list[Share]:
        """Of some of them: as planned, or on one width to the end."""
        steps = [((0.0, workers),) for workers in self.workers[places].tolist()]
        shares = construct_many(Share, steps, self.finish_s[places].tolist(), [()] * len(steps))
        for row in np.flatnonzero(self.planned[places]).tolist():
            shares[row] = known[self.jobs[places[row]].id]
        return shares


def say_promises(context: DecisionContext) -> None:
    """Of all that hold a promise or get one, what has changed."""
    outlook = _look_ahead(context)
    context.wake_first(outlook.due_at + 1e-3)
    changes: list[tuple[Job, Share, PendingPromise, Reason | None]] = []
    places = np.flatnonzero(_may_have_changed(context, outlook))
    shares = outlook.shares(places, context.reservations.shares)
    for place, share in zip(places.tolist(), shares, strict=True):
        job, special = outlook.jobs[place], None
        new, old = context.newly.get(job.id), job.verdict
        if new is not None:
            special = _rests_on_coming(context, job, new, share)
        if new is None and isinstance(old, Promise):
            special = _change(context, job, old, share, float(outlook.tolerance_s[place]))
            new = PendingPromise(old.deadline_at, old.rests_on) if special else None
        if new and special and special.code in IN_TIME:  # late by slots, which is no danger
            in_time_s = min(share.finish_s, context.time_left_s(job))
            changes.append((job, Share(share.steps, in_time_s), new, special))
        elif new:
            changes.append((job, share, new, special))
    if changes:
        jobs, new_shares, pending, reasons = zip(*changes, strict=True)
        promises = promises_of(jobs, new_shares, pending, context.forecasts, reasons)
        names = [job.id for job in jobs]
        whys = [promise.reason for promise in promises]
        context.decisions += construct_many(Promised, names, promises, whys)


def _look_ahead(context: DecisionContext) -> Outlook:
    """Of those that are told nothing else: they go on as they run or start, if that is in time."""
    frame, newly = context.forecasts.frame, context.newly
    decided = {d.job for d in context.decisions if isinstance(d, Refuse | Forecasted)}
    promised = (frame.column(PROMISED_DUE_AT) > -FOREVER) | _among(newly, frame.jobs)
    rows = np.flatnonzero(promised)
    rows = rows[~_among(decided, frame.at(rows))]
    jobs, due_at = frame.at(rows), frame.column(PROMISED_DUE_AT)[rows]
    is_new = _among(newly, jobs)
    due_at[is_new] = [newly[job.id].deadline_at for job in frame.at(rows[is_new])]
    width, finish_s = _on_one_width(context, rows, jobs)
    tolerance_s, planned = np.full(len(rows), NO_DANGER_S), np.zeros(len(rows), dtype=np.bool_)
    outlook = Outlook(rows, jobs, due_at, is_new, width, finish_s, planned, tolerance_s)
    _plan_late(context, outlook, np.flatnonzero(finish_s > due_at - context.now))
    return outlook


def _among(names: Collection[str], jobs: Sequence[Job]) -> Bools:
    flags = [job.id in names for job in jobs] if names else [False] * len(jobs)
    return np.array(flags, dtype=np.bool_)


def _on_one_width(context: DecisionContext, rows: Ints, jobs: list[Job]) -> tuple[Ints, Floats]:
    """The width that each starts on, has or is to have (0: it waits), and when it ends on that."""
    frame, starts = context.forecasts.frame, context.starts
    changed = {d.job: d.workers for d in context.decisions if isinstance(d, Resize)}
    stopped = {d.job for d in context.decisions if isinstance(d, Preempt)}
    begun = np.array([starts[job.id].workers if job.id in starts else 0 for job in jobs], int)
    resized = np.array([changed.get(job.id, 0) for job in jobs], dtype=np.int64)
    held, widths = frame.column(WORKERS)[rows], frame.levels("p90")[rows, WIDTH]
    waits = (held == 0.0) | (frame.column(STOPPING)[rows] > 0.0) | _among(stopped, jobs)
    width = np.where(waits, 0.0, np.where(resized > 0, resized, widths[:, ASKED]))
    done = frame.column(LEFT)[rows] == 0.0
    width = np.where(done, np.where(held > 0.0, held, widths[:, 0]), width)
    width = np.where(begun > 0, begun, width).astype(np.int64)
    finish_s = frame.rest_s(rows, frame.levels_of(rows, width), np.zeros(len(rows)), "p90")
    finish_s[width == 0] = FOREVER
    starting = begun > 0
    after_s = [starts[job.id].after_s for job in jobs if job.id in starts]
    plans = [
        ((at_s, workers),) for at_s, workers in zip(after_s, begun[starting].tolist(), strict=True)
    ]
    finish_s[starting] = frame.finish_s(rows[starting], plans, "p90")
    return width, finish_s


def _plan_late(context: DecisionContext, outlook: Outlook, late: Ints) -> None:
    """Those that are late on one width go on as planned, if that is sooner."""
    reservations, jobs = context.reservations, [outlook.jobs[place] for place in late.tolist()]
    plans = reservations.shares.rows_of([job.id for job in jobs])
    width, finish_s = outlook.workers[late], outlook.finish_s[late]
    planned = (plans.workers >= 0) & ((plans.finish_s < finish_s) | (width == 0))
    planned &= ~_among(context.starts, jobs) | (plans.workers_now == width)
    outlook.planned[late] = planned
    outlook.finish_s[late] = np.where(planned, plans.finish_s, finish_s)
    slots = context.forecasts.frame.column(WORKERS)[outlook.rows[late]] == 0.0
    slots &= (plans.workers >= 0) & (not reservations.roomy)
    if slots.any():
        tolerance_s = _two_slots_s(reservations.profile(), plans.starts_s[slots])
        outlook.tolerance_s[late[slots]] = tolerance_s


def _two_slots_s(profile: Profile, starts_s: Floats) -> Floats:
    """A waiting job's plan is counted in whole slots: two of them are no danger yet."""
    slot: Ints = np.searchsorted(profile.edges, starts_s + TINY_S, side="right") - 1
    slot = np.clip(slot, 0, len(profile.edges) - 3)
    return 2.0 * (profile.edges[slot + 1] - profile.edges[slot])


def _may_have_changed(context: DecisionContext, outlook: Outlook) -> Bools:
    """All but those of whom the promise stands as it was said."""
    frame, rows, now = context.forecasts.frame, outlook.rows, context.now
    window_s = outlook.due_at - frame.column(SUBMITTED_AT)[rows]
    with np.errstate(invalid="ignore"):
        moved_s = np.abs(now + outlook.finish_s - frame.column(PROMISED_P90_AT)[rows])
        stands = outlook.finish_s - (outlook.due_at - now) <= outlook.tolerance_s
        stands &= moved_s <= MOVED * window_s
    return outlook.given | ~stands | (frame.column(TROUBLED)[rows] > 0.0)


def _rests_on_coming(
    context: DecisionContext, job: Job, new: PendingPromise, share: Share
) -> Reason | None:
    """That a promise counts on nodes that have to come; None if it does not."""
    start, p90_at = context.starts.get(job.id), context.now + share.finish_s
    if start is None or start.coming is None or p90_at > new.deadline_at:
        return None
    facts = {"p90_at": p90_at, "slack_s": new.deadline_at - p90_at, "workers": share.workers}
    return reason("fits_when_nodes_come", **facts, **dict(start.coming.facts))


def _change(
    context: DecisionContext, job: Job, old: Promise, share: Share, tolerance_s: float
) -> Reason | None:
    """Why a promise must be said anew; None if it stands as it was said."""
    left_s, finish_at = old.deadline_at - context.now, context.now + share.finish_s
    if left_s < 0.0:
        late = reason("promise_broken", due_at=old.deadline_at)
        return late if old.reason.code != "promise_broken" else None
    late_s, workers = share.finish_s - left_s, share.workers
    was = old.reason.code in {"no_try_in_time", "promise_in_danger"}
    if late_s > tolerance_s:
        code = "promise_in_danger"
        return None if was else reason(code, p90_at=finish_at, late_s=late_s, workers=workers)
    p90_at = min(finish_at, old.deadline_at)
    if was:
        return reason("fits", p90_at=p90_at, slack_s=old.deadline_at - p90_at, workers=workers)
    moved_s = finish_at - old.p90_at
    is_moved = abs(moved_s) > MOVED * (old.deadline_at - job.submitted_at)
    if job.failed_starts and not job.formed:  # why its starts fail is what has to be said
        return None
    if is_moved and share.finish_s > 0.0:  # with nothing left to do it moves with the clock alone
        return reason("promise_moved", moved_s=moved_s, p90_at=p90_at)
    return None


def say_forecasts(context: DecisionContext, starts_s: Mapping[str, float]) -> None:
    """Those that moved much, or turned late or in time, are said anew."""
    refused = {d.job for d in context.decisions if isinstance(d, Refuse)}
    frame, starts, now = context.forecasts.frame, context.starts, context.state.now
    service = frame.column(SERVICE)
    may_change = (service == SOFT) | (frame.column(WAITING) > 0.0)
    mask = (service != HARD) & ((frame.column(WANTS) > 0.0) | may_change)
    jobs, widths, after_s = [], [], []
    for job in frame.where(mask):
        start = starts.get(job.id)
        width = start.workers if start is not None else 0
        starts_in_s = (
            start.after_s if start is not None and width else starts_s.get(job.id, FOREVER)
        )
        if job.id not in refused and _may_be_news(job, now + starts_in_s):
            jobs.append(job)
            widths.append(width)
            after_s.append(starts_in_s)
    forecasts = forecasts_of(jobs, context.forecasts, after_s, widths)
    messages = [
        (job.id, new, new.reason)
        for job, new in zip(jobs, forecasts, strict=True)
        if _asks(job) or job.service_class != "soft" or _has_turned(job, new, MOVED)
    ]
    context.decisions += (
        construct_many(Forecasted, *zip(*messages, strict=True)) if messages else ()
    )


def _asks(job: Job) -> bool:
    return job.asked or job.verdict is None


def _may_be_news(job: Job, starts_at: float) -> bool:
    """Of a best-effort job only what was told and cannot be any more: an end before its start."""
    if _asks(job):
        return True
    if job.service_class == "soft":
        return not job.refused
    return isinstance(job.verdict, Forecast) and job.verdict.p50_at < starts_at < FOREVER


def _has_turned(job: Job, new: Forecast, moved: float) -> bool:
    old = job.verdict
    if not isinstance(old, Forecast):
        return False
    if bool(old.late_by_s) != bool(new.late_by_s):
        return True
    if new.p90_at == old.p90_at:
        return False
    if FOREVER in (new.p90_at, old.p90_at):
        return True
    return abs(new.p90_at - old.p90_at) > moved * (old.p90_at - job.submitted_at)
