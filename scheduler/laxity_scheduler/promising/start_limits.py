"""Why a limit on the time of one start leaves a job without its promise."""

from collections.abc import Mapping

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.curve import start_to_end_s
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason


def find_limit(job: Job, forecasts: Forecasts, slots: int) -> Reason | None:
    """The limit within which no start on up to `slots` workers gets anywhere; None if one does."""
    curve = forecasts.curve(job)
    if curve.known and curve.least <= slots and job.active_deadline_s == FOREVER:
        return None
    widths = [width for width in job.widths if width <= slots]
    return _below_epoch(job, forecasts.predictor, widths) or _below_end(job, forecasts, widths)


def _below_epoch(job: Job, predictor: Predictor, widths: list[int]) -> Reason | None:
    """A link of a chain must hold an epoch."""
    epochs_s = [(predictor.epoch_time(job.workload, w).p90_s, w) for w in widths]
    epoch_s, workers = min(epochs_s)
    if not job.wall_limit_s < epoch_s < FOREVER:
        return None
    return reason(
        "wall_limit_below_epoch", limit_s=job.wall_limit_s, epoch_s=epoch_s, workers=workers
    )


def _below_end(job: Job, forecasts: Forecasts, widths: list[int]) -> Reason | None:
    """A start that is no link must hold all of the job."""
    curve = forecasts.curve(job)
    needs_s = [(start_to_end_s(curve.totals[w], curve.starts[w]), w) for w in widths]
    needed_s, workers = min(needs_s)
    if not job.active_deadline_s < needed_s < FOREVER:
        return None
    return reason(
        "active_deadline_too_short",
        limit_s=job.active_deadline_s, needed_s=needed_s, workers=workers,
    )  # fmt: skip


def restarts_reason(
    job: Job, predictor: Predictor, restarts_s: float, late: Mapping[str, float]
) -> Reason:
    """What each restart is thought to cost, and whether that was ever seen."""
    workers = int(late["workers"])
    start, stop = (
        cost(job.workload, workers) for cost in (predictor.resume_cost, predictor.suspend_cost)
    )
    was_seen = start.n_points and stop.n_points
    return reason(
        "deadline_before_last_link",
        **late,
        restarts_s=restarts_s,
        limit_s=job.wall_limit_s,
        restart_s=start.p90_s + stop.p90_s,
        basis="as seen" if was_seen else "assumed: no restart of this model was seen yet",
    )
