"""Elastic policies that hand out GPUs one width at a time, each to the job that gains most by it."""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, Protocol

from laxity_scheduler.allocation.purse import Purse
from laxity_scheduler.allocation.ranking import is_movable
from laxity_scheduler.capacity.eligibility import may_ever_start
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job

Gain = Callable[[Job, int, int], float]  # (job, from workers, to workers), larger is better
NO_FLOORS: Final[Mapping[str, int]] = MappingProxyType({})


class SharedGpus(Protocol):
    """GPUs that jobs take one after the other."""

    def take(self, job: Job, before: int, workers: int) -> bool:
        """So many workers instead of `before`, if there is room; else nothing is taken."""
        ...


def resizable_jobs(state: ClusterState, *, open_only: bool = False) -> list[Job]:
    """Jobs whose width a policy may change now, in order of submission.

    `open_only`: not the running ones that know no other width.
    """
    jobs = [
        job
        for job in state.jobs
        if not (open_only and job.workers and len(job.widths) == 1)
        and is_movable(job)
        and not job.resize_to
        and (not job.workers or job.workers in job.widths)
        and (not job.eligible or job.workers or may_ever_start(state, job))
    ]
    return sorted(jobs, key=lambda job: (job.submitted_at, job.id))


def widen_by_gain(
    jobs: Sequence[Job], purse: SharedGpus, gain: Gain, floors: Mapping[str, int] = NO_FLOORS
) -> dict[str, int]:
    """Workers by job id (absent: none). `jobs` come in the order in which they get their least.

    `floors`: by job id, the width that one begins at in place of its least.
    """
    width: dict[str, int] = {}
    heads: list[tuple[float, int, int]] = []
    for number, job in enumerate(jobs):
        least = floors.get(job.id, job.widths[0])
        if purse.take(job, 0, least):
            width[job.id] = least
            _push_best_step(heads, number, job, place=job.widths.index(least), gain=gain)
    heapify(heads)
    while heads:
        _, number, place = heappop(heads)
        job = jobs[number]
        if purse.take(job, width[job.id], job.widths[place]):
            width[job.id] = job.widths[place]
            _push_best_step(heads, number, job, place=place, gain=gain)
    return width


def widen_by_time_saved(
    jobs: Sequence[Job],
    purse: SharedGpus,
    forecasts: Forecasts,
    floors: Mapping[str, int] = NO_FLOORS,
) -> dict[str, int]:
    """Optimus's rule: gain = (time left now - time left with more, re-forming too) / GPUs more."""

    def gain(job: Job, workers: int, more: int) -> float:
        curve = forecasts.curve(job)
        saved_s = curve.total_s(workers, "mean") - curve.total_s(more, "mean")
        if job.workers and more != job.workers:
            saved_s -= curve.reform_s(more, "mean")
        return saved_s / ((more - workers) * job.gpus_per_worker)

    return widen_by_gain(jobs, purse, gain, floors)


def widen_by_least_share(
    jobs: Sequence[Job],
    purse: SharedGpus,
    forecasts: Forecasts,
    floors: Mapping[str, int] = NO_FLOORS,
) -> dict[str, int]:
    """Dominant resource fairness: the smallest holder gets its next width that is faster."""

    def least_share(job: Job, workers: int, more: int) -> float:
        useful = forecasts.curve(job).widths
        following = next((width for width in useful if width > workers), 0)
        return 1.0 / (workers * job.gpus_per_worker) if more == following else 0.0

    return widen_by_gain(jobs, purse, least_share, floors)


WidthRule = Callable[[Sequence[Job], Purse, Forecasts], dict[str, int]]
FloorRule = Callable[[Sequence[Job], SharedGpus, Forecasts, Mapping[str, int]], dict[str, int]]
TEACHERS: Final[dict[str, FloorRule]] = {  # whom a policy can learn from, and fall back to
    "optimus": widen_by_time_saved,
    "drf": widen_by_least_share,
}


def _push_best_step(
    heads: list[tuple[float, int, int]],
    number: int,
    job: Job,
    *,
    place: int,
    gain: Gain,
) -> None:
    """Queue the best next width of a job, also if the widths before it gain less."""
    steps = [
        (-gain(job, job.widths[place], job.widths[higher]), number, higher)
        for higher in range(place + 1, len(job.widths))
    ]
    best = min(steps, default=None)
    if best is not None and best[0] < 0.0:
        heappush(heads, best)


def budget_of_jobs(state: ClusterState, jobs: Sequence[Job]) -> Purse:
    """The GPUs that these jobs may use: free ones, and those that they hold."""
    return Purse(state, jobs, Ledger.of(state).total_free + sum(job.gpus for job in jobs))
