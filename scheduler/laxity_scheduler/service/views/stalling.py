"""Running jobs whose epoch takes far longer than it should: people are told, nothing is stopped.

A job is stalled once its epoch has lasted six times its P90 and what a start costs, at least 90 s. Of
one that runs and has never reported an epoch, the whole run counts as one.
"""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, Final, NamedTuple

from laxity_profiler.estimate import Ask, Predictor
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason

PATIENCE: Final = 6.0  # times the P90 of an epoch
LEAST_S: Final = 90.0
ENOUGH: Final = 3  # own epochs, from which on they are believed alone


class Stall(NamedTuple):
    """When the last epoch of a job ended (or its first one or start began), and what one usually takes."""

    since: float
    usual_s: float


class StallWatch:
    """Finds stalled jobs. `due_at` is when the next job stalls if none of its epochs ends."""

    def __init__(self, faults: JobFaults) -> None:
        self.due_at = FOREVER
        self._faults = faults
        self._limits: dict[str, tuple[Job, float, float]] = {}  # by id: the most, and the usual

    def find(
        self, jobs: Iterable[Job], predictor: Predictor, now: float, *, all_jobs: bool
    ) -> dict[str, Stall]:
        """The stalled ones of these jobs by id; `all_jobs`: there are no others that run."""
        if all_jobs:
            rows = list(jobs)
            ids = {job.id for job in rows}
            self._limits = {key: row for key, row in self._limits.items() if key in ids}
            self.due_at, jobs = FOREVER, rows
        stalls = {}
        for job in jobs:
            since, is_between = job.epoch_started_at, job.parked_epoch is not None
            since = since if job.reports else job.resumed_at
            if since is None or is_between or job.progress.epochs_done >= job.workload.epochs:
                continue
            most_s, usual_s = LEAST_S, 0.0
            if now >= since + LEAST_S:
                most_s = FOREVER
                with self._faults.isolate("stall", job.id):
                    most_s, usual_s = self._limit(job, predictor)
            if now >= since + most_s:
                stalls[job.id] = Stall(since, usual_s)
            else:
                self.due_at = min(self.due_at, since + most_s)
        return stalls

    def _limit(self, job: Job, predictor: Predictor) -> tuple[float, float]:
        cached = self._limits.get(job.id)
        if cached is None or cached[0] is not job:
            cached = self._limits[job.id] = (job, *epoch_limit_s(job, predictor))
        return cached[1:]


def epoch_limit_s(job: Job, predictor: Predictor) -> tuple[float, float]:
    """The longest that its epoch, or its run if it reports none, may take; what an epoch usually takes.

    In seconds; infinite where nothing is known of its epochs.
    """
    width = job.formed or job.workers
    expected = predictor.epoch_time(job.workload, width)
    own = job.progress.epoch_s
    usual_s = median(own) if own else expected.p50_s
    p90_s = max(own) if len(own) >= ENOUGH else max(expected.p90_s, *own, 0.0)
    if not job.reports:
        p90_s = predictor.remaining(job.workload, job.progress, width).p90_s
    if p90_s < FOREVER:
        _, next_p90_s = predictor.table((Ask(job.workload, job.progress, width),)).next_unit(0)
        p90_s = max(p90_s, next_p90_s)  # a validation, if this model's runs have one here
    start_s = predictor.resume_cost(job.workload, width).p90_s
    return max(LEAST_S, PATIENCE * p90_s + start_s), usual_s


def stall_notice(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], now: float
) -> Reason | None:
    """What is to be told when a view changes: that its job has stalled, or that this is over."""
    was_since, since = (before or {}).get("stalled_since"), after.get("stalled_since")
    if since is not None and since != was_since:
        return reason("stalled", waited_s=now - since, usual_s=after["usual_epoch_s"])
    if since is None and was_since is not None and after["state"] == "running":
        return reason("stall_over", waited_s=now - was_since)
    return None
