"""Deadlines first: promise or refuse, start by least slack, size to be in time, stop where it pays.

The QoS framework (algorithms.md 3) with promises that are kept: the minimum share of ElasticFlow
behind every promise (7.6), PickyMan's choice of whom to stop (2.5). Steps of one decision:

1. verdicts for those who ask: promised are counted before the next is judged
2. running promised jobs that would miss their deadline get more workers
3. waiting jobs start in order; where a promise cannot wait, others are told to stop
4. jobs wider than they need give workers back to those who wait; idle GPUs widen who gains most
5. promises that moved are said anew, once per change
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from laxity_profiler.estimate import Predictor
from laxity_scheduler.eligibility import misfit_reason
from laxity_scheduler.frame.construct import replace_fields
from laxity_scheduler.frame.fields import (
    HARD,
    PROMISED_DUE_AT,
    PROMISED_P90_AT,
    SERVICE,
    SOFT,
    STOPS_LATE,
    SUBMITTED_AT,
    TROUBLED,
    WAITING,
    WANTS,
)
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import (
    Continue,
    Decision,
    Forecasted,
    Preempt,
    Promised,
    Refuse,
    Resize,
    Wait,
)
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.model.stop_requests import needless_stops, withdraw_stops
from laxity_scheduler.model.verdict import Forecast, PendingPromise, Promise, Refusal
from laxity_scheduler.plan import Plan
from laxity_scheduler.promising.promise import forecast_of, promise_of
from laxity_scheduler.promising.queueing import Waiting, expected_starts
from laxity_scheduler.promising.reserve import Share
from laxity_scheduler.qos.bargain import Bargain, Rules
from laxity_scheduler.qos.batch_messages import (
    admissions,
    forecasts_said,
    never_said,
    plans_said,
    promises_said,
)
from laxity_scheduler.qos.batch_waits import LOOK_AGAIN_S
from laxity_scheduler.qos.idle_growth import grow_into_idle
from laxity_scheduler.qos.newcomers import Newcomers
from laxity_scheduler.qos.planned_sizes import as_told
from laxity_scheduler.qos.sizing import defend, hasten, narrow
from laxity_scheduler.qos.starting import Starts
from laxity_scheduler.qos.waiting_words import waits_said

MOST_EXPECTED = 1_000  # so many waiting jobs are told when they may expect to start
MOST_HOLDERS = 5


@dataclass(frozen=True)
class QosPolicy(Rules):
    """The policy with its free parameters; calling it decides."""

    def __call__(self, state: ClusterState, predictor: Predictor) -> Plan:
        state = (
            state.in_submission_order
        )  # who came first decides ties, whatever the order of the rows
        spared = needless_stops(state)
        while spared:
            decisions, wake_at = self._decide(withdraw_stops(state, spared), predictor)
            stopped = {d.job for d in decisions if isinstance(d, Preempt)}
            if stopped.isdisjoint(job.id for job in spared):
                return Plan(_taken_back(decisions, spared), min(wake_at, state.now + 1.0))
            spared = [job for job in spared if job.id not in stopped]  # others need these
        decisions, wake_at = self._decide(state, predictor)
        return Plan(tuple(decisions), wake_at)

    def _decide(self, state: ClusterState, predictor: Predictor) -> tuple[list[Decision], float]:
        bargain = Bargain(state, Forecasts(state, predictor), self)
        _verdicts(bargain)
        _missed(bargain)
        starts = Starts(bargain)
        starts.restarts()
        defend(bargain)
        starts.first()
        starts.yields()
        starts.others()
        hasten(bargain)
        narrow(bargain)
        grow_into_idle(bargain)
        _promises(bargain)
        _admissions(bargain)
        expected_s = _expected_starts(bargain, starts.queue)
        _forecasts(bargain, expected_s)
        _waits(bargain, expected_s)
        for hold in state.holds:
            bargain.wake(hold.until_at)
        return bargain.decisions, bargain.wake_at


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    """The policy with its default parameters."""
    return DEFAULT(state, predictor)


DEFAULT = QosPolicy()
OPEN = QosPolicy(refuses=False)


def open_to_all(state: ClusterState, predictor: Predictor) -> Plan:
    """As published: nobody is refused; who cannot be promised is still served, behind promises."""
    return OPEN(state, predictor)


def _verdicts(bargain: Bargain) -> None:
    """Of hard jobs that ask. Amended promises first: they are judged on the snapshot's rows."""
    frame = bargain.forecasts.frame
    asking = [
        job
        for job in frame.where((frame.column(WANTS) > 0.0) & (frame.column(SERVICE) == HARD))
        if not job.pinned
    ]
    amended = [job for job in asking if isinstance(job.verdict, Promise)]
    for job in amended:
        _judge(bargain, job)
    others = [job for job in asking if not isinstance(job.verdict, Promise)]
    if others:
        _judge_all(bargain, Newcomers(bargain.waiting, others, bargain.reservations), others)


def _judge_all(bargain: Bargain, newcomers: Newcomers, jobs: Sequence[Job]) -> None:
    """One after the other; runs of those of whom nothing special is to be said, all at once."""
    done = 0
    while done < len(jobs):
        given = newcomers.promise(done)
        bargain.newly |= given
        done += len(given)
        if done < len(jobs):
            _judge(bargain, jobs[done])
            done += 1


def _judge(bargain: Bargain, job: Job) -> None:
    verdict = bargain.judge.verdict(job)
    match verdict:
        case Promise():
            bargain.newly[job.id] = PendingPromise(verdict.deadline_at, verdict.rests_on)
        case Refusal() if _goes(bargain, job):
            bargain.decisions.append(Refuse(job.id, verdict, verdict.reason))
        case Refusal():
            bargain.decisions.append(_runs_on(bargain, job, verdict))
            bargain.wake(bargain.now + LOOK_AGAIN_S)  # from then on it is in the queue
        case Forecast():
            bargain.decisions.append(Forecasted(job.id, verdict, verdict.reason))


def _goes(bargain: Bargain, job: Job) -> bool:
    """Whether a refused job is told so, and so goes; else it runs on as a soft one."""
    kept = isinstance(job.verdict, Promise)  # the old promise stands
    return bargain.rules.refuses or kept or job.deadline_at <= bargain.now


def _runs_on(bargain: Bargain, job: Job, verdict: Refusal) -> Forecasted:
    """What a job is told that is not promised and yet stays (algorithms.md 3.4, 10.1)."""
    late_s = max(0.0, verdict.p90_at - job.deadline_at)
    why = reason("forecast_late", p90_at=verdict.p90_at, late_s=late_s)
    return Forecasted(job.id, Forecast(verdict.p90_at, verdict.p90_at, late_s, why), why)


def _forecasts(bargain: Bargain, starts_s: dict[str, float]) -> None:
    """Of all others that ask, and of soft jobs whose forecast moved much or turned late."""
    refused = {d.job for d in bargain.decisions if isinstance(d, Refuse)}
    frame = bargain.forecasts.frame
    service = frame.column(SERVICE)
    told = (service != HARD) & ((frame.column(WANTS) > 0.0) | (service == SOFT))
    jobs = [job for job in frame.where(told) if job.id not in refused]
    said = forecasts_said(bargain, jobs) | never_said(bargain, jobs, starts_s)
    for job in jobs:
        if job.id in said:
            bargain.decisions.append(said[job.id])
            continue
        asks = job.asked or job.verdict is None
        if job.refused and not asks:
            continue
        start = bargain.starts.get(job.id)
        after_s = 0.0 if job.workers or start else starts_s.get(job.id, FOREVER)
        width = start.workers if start else 0
        new = forecast_of(job, bargain.forecasts, after_s, workers=width)
        if asks or _turned(job, new, bargain.rules.moved):
            bargain.decisions.append(Forecasted(job.id, new, new.reason))


def _turned(job: Job, new: Forecast, moved: float) -> bool:
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


def _missed(bargain: Bargain) -> None:
    """Jobs that are not to go on past their deadline."""
    decided = {d.job for d in bargain.decisions if isinstance(d, Refuse)}
    for job in bargain.forecasts.frame.where(bargain.forecasts.frame.column(STOPS_LATE) > 0.0):
        if job.pinned or job.refused or job.deadline_at == FOREVER:
            continue
        if job.id in decided:
            continue
        late_s = bargain.now - _last_deadline(job)
        if late_s <= 0.0:
            bargain.wake(_last_deadline(job) + 1e-3)
            continue
        why = reason("missed_and_stopped", due_at=_last_deadline(job))
        if job.workers:
            if bargain.settled(job):
                bargain.change(Preempt(job.id, "epoch", "", why))
        elif not job.terminating_workers:
            bargain.acted.add(job.id)
            bargain.decisions.append(Refuse(job.id, Refusal(why), why))


def _taken_back(decisions: Iterable[Decision], spared: Iterable[Job]) -> tuple[Decision, ...]:
    """With the stops taken back; the widths of these jobs change from the next decision on."""
    asked = {job.id: job.stop_for for job in spared}
    others = [d for d in decisions if not (isinstance(d, Resize) and d.job in asked)]
    back = [Continue(job, reason("stop_taken_back", beneficiary=asked[job])) for job in asked]
    return (*others, *back)


def _last_deadline(job: Job) -> float:
    promised_at = job.verdict.deadline_at if isinstance(job.verdict, Promise) else 0.0
    return max(promised_at, job.deadline_at) if job.asked else promised_at or job.deadline_at


def _admissions(bargain: Bargain) -> None:
    bargain.decisions += admissions(bargain)


def _promises(bargain: Bargain) -> None:
    """New promises as they will be carried out; old ones that moved, in danger, saved or broken."""
    resized = {d.job: d.workers for d in bargain.decisions if isinstance(d, Resize)}
    told = {d.job for d in bargain.decisions if isinstance(d, Refuse | Forecasted)}
    moving = _moving(bargain, resized, told)
    quiet = [job for job in moving if job.id not in told]
    said = promises_said(bargain, quiet) | plans_said(bargain, quiet)
    for job in moving:
        if job.id in said:
            bargain.decisions.append(said[job.id])
            continue
        old = bargain.newly.get(job.id) or job.verdict
        if not isinstance(old, Promise | PendingPromise) or job.id in told:
            continue
        bargain.wake(old.deadline_at + 1e-3)
        share = _expected(bargain, job, resized.get(job.id, 0))
        why = _change(bargain, job, old, share)
        if why is not None and why.code in {"fits", "promise_moved"}:
            in_time_s = min(share.finish_s, bargain.left_s(job))
            share = replace(share, finish_s=in_time_s)  # late by slots, which is no danger
        if why is not None or job.id in bargain.newly:
            new = promise_of(job, share, old.deadline_at, bargain.forecasts)
            new = replace_fields(new, reason=why or new.reason, rests_on=old.rests_on)
            bargain.decisions.append(Promised(job.id, new, new.reason))


def _moving(bargain: Bargain, resized: Mapping[str, int], told: Collection[str]) -> list[Job]:
    """Jobs of which a promise may have to be said; of the others it stands as it was said.

    It stands where a job trains at its width, is in time with it, and ends about when it was told.
    """
    frame = bargain.forecasts.frame
    due_at, now = frame.column(PROMISED_DUE_AT), frame.now
    window_s = due_at - frame.column(SUBMITTED_AT)
    with np.errstate(invalid="ignore"):
        moved_s = np.abs(now + frame.remaining_s - frame.column(PROMISED_P90_AT))
        stands = frame.plain & (frame.remaining_s <= due_at - now)
        stands &= (moved_s <= bargain.rules.moved * window_s) & (frame.column(TROUBLED) == 0.0)
    if bargain.newly or resized:
        jobs = frame.jobs
        for row in np.flatnonzero(stands).tolist():
            if jobs[row].id in bargain.newly or jobs[row].id in resized:
                stands[row] = False
    stands |= as_told(bargain, frame, told)
    bargain.wake_first(due_at[stands] + 1e-3)
    may = ~stands & (due_at > -FOREVER)
    if bargain.newly:
        may |= np.array([job.id in bargain.newly for job in frame.jobs], dtype=np.bool_)
    return frame.where(may)


def _expected(bargain: Bargain, job: Job, resized: int) -> Share:
    """How a promised job goes on: as it runs or starts, if that is in time; else as planned."""
    forecasts = bargain.forecasts
    planned = bargain.reservations.shares.get(job.id)
    start = bargain.starts.get(job.id)
    if start is not None:
        steps = ((0.0, start.workers),)
        begun = Share(steps, forecasts.finish_s(job, steps))
        grows = planned is not None and planned.workers_now == start.workers
        if planned is None or not grows or begun.finish_s <= bargain.left_s(job):
            return begun
        return min(begun, planned, key=lambda share: share.finish_s)
    if not forecasts.curve(job).epochs_left:
        return Share(((0.0, job.workers or forecasts.curve(job).least),), 0.0)
    if not job.workers or stopping(job):
        return planned or Share(((0.0, 0),), FOREVER)
    width = resized or job.resize_to or job.workers
    running = Share(((0.0, width),), forecasts.rest_s(job, width))
    if running.finish_s <= bargain.left_s(job) or planned is None:
        return running
    return min(running, planned, key=lambda share: share.finish_s)


def _change(
    bargain: Bargain, job: Job, old: Promise | PendingPromise, share: Share
) -> Reason | None:
    """Why a promise must be said anew; None if it stands as it was said."""
    left_s = old.deadline_at - bargain.now
    if isinstance(old, PendingPromise):
        return None
    if left_s < 0.0:
        late = reason("promise_broken", due_at=old.deadline_at)
        return late if old.reason.code != "promise_broken" else None
    late_s, workers = share.finish_s - left_s, share.workers
    was = old.reason.code == "promise_in_danger"
    if late_s > _tolerance_s(bargain, job):
        code, p90_at = "promise_in_danger", bargain.now + share.finish_s
        found = reason(code, p90_at=p90_at, late_s=late_s, workers=workers)
        return None if was else found
    p90_at = min(bargain.now + share.finish_s, old.deadline_at)
    if was:
        return reason("fits", p90_at=p90_at, slack_s=old.deadline_at - p90_at, workers=workers)
    moved_s = bargain.now + share.finish_s - old.p90_at
    if abs(moved_s) > bargain.rules.moved * (old.deadline_at - job.submitted_at):
        return reason("promise_moved", moved_s=moved_s, p90_at=p90_at)
    return None


def _tolerance_s(bargain: Bargain, job: Job) -> float:
    """A waiting job's plan is counted in whole slots: two of them are no danger yet."""
    if job.workers or bargain.reservations.roomy:
        return 1e-3
    share = bargain.reservations.shares.get(job.id)
    if share is None:
        return 1e-3
    profile = bargain.reservations.profile()
    slot = min(profile.slot(share.starts_s), len(profile.marks) - 3)
    return 2.0 * (profile.marks[slot + 1] - profile.marks[slot])


def _expected_starts(bargain: Bargain, queue: list[Waiting]) -> dict[str, float]:
    if not bargain.blocked:
        return {}
    return expected_starts(queue[:MOST_EXPECTED], bargain.reservations, bargain.state)


def _waits(bargain: Bargain, starts_s: dict[str, float]) -> None:
    """Why each waiting job waits, for whom, and until when."""
    if bargain.state.sets:
        bargain.decisions += _never(bargain)
    if not bargain.blocked:
        return
    bargain.decisions += waits_said(bargain, starts_s)


def _never(bargain: Bargain) -> list[Wait]:
    """Of waiting jobs that no node will ever do for."""
    frame = bargain.forecasts.frame
    told = {d.job for d in bargain.decisions if isinstance(d, Refuse)}
    waiting = [job for job in frame.where(frame.column(WAITING) > 0.0) if not job.refused]
    found = [(job.id, misfit_reason(bargain.state, job)) for job in waiting if job.id not in told]
    return [Wait(name, why) for name, why in found if why is not None]
