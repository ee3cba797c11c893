"""Forecasts: of all who ask and get no promise, and of soft jobs whose forecast has changed."""

from collections.abc import Mapping

from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.fields import HARD, SERVICE, SOFT, WANTS
from laxity_scheduler.model.decision import Forecasted, Refuse
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.verdict import Forecast
from laxity_scheduler.promising.promise import forecasts_of
from laxity_scheduler.qos.context import DecisionContext


def say_forecasts(context: DecisionContext, starts_s: Mapping[str, float]) -> None:
    """Those that moved much, or turned late or in time, are said anew."""
    refused = {d.job for d in context.decisions if isinstance(d, Refuse)}
    frame, starts = context.forecasts.frame, context.starts
    service = frame.column(SERVICE)
    mask = (service != HARD) & ((frame.column(WANTS) > 0.0) | (service == SOFT))
    jobs = [
        job
        for job in frame.where(mask)
        if job.id not in refused and (_asks(job) or not job.refused)
    ]
    widths = [starts[job.id].workers if job.id in starts else 0 for job in jobs]
    after_s = [
        starts[job.id].after_s if width else starts_s.get(job.id, FOREVER)
        for job, width in zip(jobs, widths, strict=True)
    ]
    forecasts = forecasts_of(jobs, context.forecasts, after_s, widths)
    messages = [
        (job.id, new, new.reason)
        for job, new in zip(jobs, forecasts, strict=True)
        if _asks(job) or _has_turned(job, new, context.rules.moved)
    ]
    context.decisions += (
        construct_many(Forecasted, *zip(*messages, strict=True)) if messages else ()
    )


def _asks(job: Job) -> bool:
    return job.asked or job.verdict is None


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
