"""What the predictor in use says of a snapshot's jobs, once for all, and what policies believe of it.

Each job of a rollout is a workload of its own, by its id. It takes the P50; the spread that is
believed shrinks with the epochs that it sees, as in the lab.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from laxity_profiler.estimate import Ask, Estimate, Estimates, Predictor, Progress, Workload
from laxity_scheduler.model.job import Job
from laxity_scheduler.simulated.beliefs import UNKNOWN, Z90, believed, certain
from laxity_scheduler.simulated.ground_truth import GroundTruth

LONGEST_S: Final = 1e9  # what takes longer, or nobody knows how long, has no end here


class QueuePredictor:
    """A Predictor for the jobs of one rollout."""

    def __init__(
        self, truths: Mapping[str, GroundTruth], sigmas: Mapping[str, float], version: str
    ) -> None:
        self.truths, self._sigmas = truths, sigmas
        self._version = version

    @classmethod
    def of(cls, jobs: Sequence[Job], predictor: Predictor, products: Collection[str] = ()) -> Self:
        """What `predictor` says of them now; on each of these products of GPU, too."""
        ways = [(job, [job.workload, *_on_products(job, products)]) for job in jobs]
        asks = [
            Ask(workload, job.progress, width)
            for job, workloads in ways
            for workload in workloads
            for width in _widths(job)
        ]
        answers = iter(predictor.table(asks))
        truths, sigmas = {}, {}
        for number, (job, workloads) in enumerate(ways):
            rest, *on = [{width: next(answers) for width in _widths(job)} for _ in workloads]
            truth = _truth_of(job, number, rest, predictor)
            times = {
                product: _epochs_s(job, each) for product, each in zip(products, on, strict=True)
            }
            truths[job.id] = replace(truth, epoch_s_on=times)
            sigmas[job.id] = max(map(_sigma_of, rest.values()))
        return cls(truths, sigmas, f"rollout of {predictor.version}")

    @property
    def version(self) -> str:
        return self._version

    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        return self._estimate(workload, workers, 1, 0)

    def remaining(self, workload: Workload, progress: Progress, workers: int) -> Estimate:
        left = max(0, workload.epochs - progress.epochs_done)
        return self._estimate(workload, workers, left, len(progress.epoch_s))

    def table(self, asks: Sequence[Ask]) -> Estimates:
        return Estimates.of([self.remaining(a.workload, a.progress, a.workers) for a in asks])

    def suspend_cost(self, workload: Workload, workers: int) -> Estimate:
        return certain(self.truths[workload.model].stop_s.get(workers, 0.0))

    def resume_cost(self, workload: Workload, workers: int) -> Estimate:
        return certain(self.truths[workload.model].start_s.get(workers, 0.0))

    def finishing_time(self, workload: Workload, workers: int) -> Estimate:
        return certain(0.0)  # it is part of the rest

    def to_json(self) -> dict[str, object]:
        return {"kind": "rollout", "version": self._version}

    def _estimate(self, workload: Workload, workers: int, epochs: int, seen: int) -> Estimate:
        times = self.truths[workload.model].times_on(workload.gpu_type)
        epoch_s = times.get(workers, LONGEST_S)
        if epoch_s >= LONGEST_S:
            return UNKNOWN
        sigma = self._sigmas[workload.model]
        return believed(epochs * epoch_s, factor=1.0, sigma=sigma, seen=seen)


def _widths(job: Job) -> list[int]:
    """All that it may have, and those that it has or was asked for."""
    return sorted({*job.widths, job.workers, job.formed, job.resize_to} - {0})


def _on_products(job: Job, products: Collection[str]) -> list[Workload]:
    return [replace(job.workload, gpu_type=product) for product in products]


def _epochs_s(job: Job, rest: Mapping[int, Estimate]) -> dict[int, float]:
    """The time of an epoch by width, if all that are left take as long."""
    left = max(1, job.workload.epochs - job.progress.epochs_done)
    return {width: min(LONGEST_S, each.p50_s / left) or LONGEST_S for width, each in rest.items()}


def _truth_of(
    job: Job, number: int, rest: Mapping[int, Estimate], predictor: Predictor
) -> GroundTruth:
    costs = {
        width: (
            predictor.resume_cost(job.workload, width),
            predictor.suspend_cost(job.workload, width),
        )
        for width in rest
    }
    return GroundTruth(
        id=job.id,
        number=number,
        submitted_at=job.submitted_at,
        epochs=job.workload.epochs,
        widths=job.widths,
        epoch_s=_epochs_s(job, rest),
        gpus_per_worker=job.gpus_per_worker,
        workload=replace(job.workload, model=job.id),
        start_s={width: start.p50_s for width, (start, _) in costs.items()},
        stop_s={width: stop.p50_s for width, (_, stop) in costs.items()},
    )


def _sigma_of(rest: Estimate) -> float:
    """The spread of a log-normal rest with this P50 and P90."""
    if not 0.0 < rest.p50_s < rest.p90_s < LONGEST_S:
        return 0.0
    return math.log(rest.p90_s / rest.p50_s) / Z90
