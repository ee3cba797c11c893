"""Verdicts on hard jobs that ask, and the end of those that are not to go on past their deadline."""

from collections.abc import Sequence

from laxity_scheduler.frame.fields import (
    BEST_EFFORT,
    DUE_AT,
    HARD,
    PINNED,
    SERVICE,
    STAYS,
    STOPS_LATE,
    WANTS,
    WORKERS,
)
from laxity_scheduler.model.decision import Forecasted, Preempt, Refuse
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.model.verdict import Forecast, PendingPromise, Promise, Refusal
from laxity_scheduler.promising.claims import claims_of, want_promise
from laxity_scheduler.qos.context import DecisionContext
from laxity_scheduler.qos.newcomers import Newcomers
from laxity_scheduler.qos.planned_waits import LOOK_AGAIN_S


def assume_promised(context: DecisionContext, names: frozenset[str]) -> None:
    """These jobs, whose claims the snapshot has already, are promised by this decision."""
    for job in context.state.jobs if names else ():
        if job.id in names:
            source = context.forecasts.curve(job).source
            others = [name for name in context.reservations.first_names if name != job.id]
            context.newly[job.id] = PendingPromise(job.deadline_at, (source, *others))


def holds_share(job: Job) -> bool:
    """Whether it is promised with its group: no more is asked about it than when it must end."""
    return isinstance(job.verdict, Promise) and job.verdict.reason.code == "share_of_group"


def give_verdicts(context: DecisionContext) -> None:
    """Of hard jobs that ask. Amended promises first: they are judged on the snapshot's rows."""
    frame = context.forecasts.frame
    asking = [
        job
        for job in frame.where((frame.column(WANTS) > 0.0) & (frame.column(SERVICE) == HARD))
        if not job.pinned
    ]
    amended = [job for job in asking if isinstance(job.verdict, Promise)]
    shares = [job for job in amended if holds_share(job)]
    assume_promised(context, frozenset([job.id for job in shares]))
    for job in amended:
        if job.id not in context.newly:
            _judge(context, job)
    others = [job for job in asking if not isinstance(job.verdict, Promise)]
    if others:
        _judge_all(context, Newcomers(context.waiting, others, context.reservations), others)


def _judge_all(context: DecisionContext, newcomers: Newcomers, jobs: Sequence[Job]) -> None:
    """One after the other; runs of those of whom nothing special is to be said, all at once."""
    done = 0
    while done < len(jobs):
        promises = newcomers.promise(done)
        context.newly |= promises
        done += len(promises)
        if done < len(jobs):
            _judge(context, jobs[done])
            done += 1


def _judge(context: DecisionContext, job: Job) -> None:
    verdict = context.judge.verdict(job)
    match verdict:
        case Promise():
            context.newly[job.id] = PendingPromise(verdict.deadline_at, verdict.rests_on)
        case Refusal() if _goes(context, job):
            context.decisions.append(Refuse(job.id, verdict, verdict.reason))
        case Refusal():
            context.decisions.append(_runs_on(context, job, verdict))
            context.wake(context.now + LOOK_AGAIN_S)  # from then on it is in the queue
        case Forecast():
            context.decisions.append(Forecasted(job.id, verdict, verdict.reason))


def _goes(context: DecisionContext, job: Job) -> bool:
    """Whether a refused job is told so, and so goes; else it runs on as a soft one."""
    keeps_promise = isinstance(job.verdict, Promise)  # the old promise stands
    return context.rules.refuses or keeps_promise or job.deadline_at <= context.now


def _runs_on(context: DecisionContext, job: Job, verdict: Refusal) -> Forecasted:
    """What a job is told that is not promised and yet stays (algorithms.md 3.4, 10.1)."""
    late_s = max(0.0, verdict.p90_at - job.deadline_at)
    forecast_reason = reason("forecast_late", p90_at=verdict.p90_at, late_s=late_s)
    return Forecasted(
        job.id, Forecast(verdict.p90_at, verdict.p90_at, late_s, forecast_reason), forecast_reason
    )


def stop_missed(context: DecisionContext) -> None:
    """Jobs that are not to go on past their deadline."""
    decided = {d.job for d in context.decisions if isinstance(d, Refuse)}
    for job in context.forecasts.frame.where(context.forecasts.frame.column(STOPS_LATE) > 0.0):
        if job.pinned or job.refused or job.deadline_at == FOREVER:
            continue
        if job.id in decided:
            continue
        late_s = context.now - _last_deadline(job)
        if late_s <= 0.0:
            context.wake(_last_deadline(job) + 1e-3)
            continue
        stop_reason = reason("missed_and_stopped", due_at=_last_deadline(job))
        if job.workers:
            if context.is_settled(job):
                context.change(Preempt(job.id, "epoch", "", stop_reason))
        elif not job.terminating_workers:
            context.acted.add(job.id)
            context.decisions.append(Refuse(job.id, Refusal(stop_reason), stop_reason))


def claim_leftovers(context: DecisionContext) -> None:
    """Jobs with a deadline and no promise claim what promises leave, where that is in time."""
    frame, reservations = context.forecasts.frame, context.reservations
    due_at = frame.column(DUE_AT)
    mask = (due_at > context.now) & (due_at < FOREVER) & ~frame.promised
    mask &= (frame.column(SERVICE) != BEST_EFFORT) & (frame.column(PINNED) == 0.0)
    mask &= (frame.column(WORKERS) == 0.0) | (frame.column(STAYS) == 0.0)
    decided = {d.job for d in context.decisions if isinstance(d, Refuse)}
    jobs = [
        job
        for job in frame.where(mask & ~want_promise(frame))
        if job.id not in reservations.shares and not job.refused
        if job.id not in context.acted and job.id not in decided
    ]
    if jobs:
        left_s = [job.deadline_at - context.now for job in jobs]
        reservations.plan_behind(claims_of(frame, jobs, left_s))


def _last_deadline(job: Job) -> float:
    promised_at = job.verdict.deadline_at if isinstance(job.verdict, Promise) else 0.0
    return max(promised_at, job.deadline_at) if job.asked else promised_at or job.deadline_at
