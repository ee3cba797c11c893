"""Forecasts: of all who ask and get no promise, and again where what was told has changed.

Of soft jobs that is a move; of others that wait, a start behind the finish that they were told.
"""

from collections.abc import Mapping

from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.fields import HARD, SERVICE, SOFT, WAITING, WANTS
from laxity_scheduler.model.decision import Forecasted, Refuse
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.verdict import Forecast
from laxity_scheduler.promising.promise import forecasts_of
from laxity_scheduler.qos.context import MOVED, DecisionContext


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
