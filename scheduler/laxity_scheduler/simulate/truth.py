"""What really happens to a simulated job, and what policies are told of it.

A trace's job becomes a number of equal epochs (600 s each at the width that its user asked for,
at least 1, at most 1,000) and the seconds of one epoch on each width: from a measured throughput
table (elastic), or from the recorded duration (rigid). Policies never see this: they ask a Belief,
a predictor whose error is drawn per job from a seed.
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from laxity_profiler.estimate import Ask, Estimate, Estimates, Floats, Progress, Workload
from laxity_scheduler.model.job import FOREVER, Job, ServiceClass
from laxity_scheduler.order import Shape
from laxity_scheduler.simulate.costs import Costs
from laxity_scheduler.simulate.traces import Trace, TraceJob

EPOCH_S: Final = 600.0
MOST_EPOCHS: Final = 1_000
Z90: Final = 1.2815515594457831  # the 90 % quantile of the standard normal distribution


@dataclass(frozen=True, slots=True)
class Truth:
    """One job as it really is. `epoch_s` is the time of one epoch by width, without any cost."""

    id: str
    number: int  # place in the trace
    submitted_at: float
    epochs: int
    widths: tuple[int, ...]
    epoch_s: Mapping[int, float]
    gpus_per_worker: int = 1
    deadline_at: float = FOREVER
    service_class: ServiceClass = "best_effort"
    model: str = ""
    ideal_s: float = 0.0  # alone, at the width asked for
    asked_gpus: int = 1
    workload: Workload = field(default=Workload("", 1))
    eligible: str = ""

    def row(self) -> Job:
        """The job as it is submitted."""
        return Job(
            id=self.id,
            workload=self.workload,
            submitted_at=self.submitted_at,
            deadline_at=self.deadline_at,
            service_class=self.service_class,
            widths=self.widths,
            gpus_per_worker=self.gpus_per_worker,
            since=self.submitted_at,
            queued_at=self.submitted_at,
            eligible=self.eligible,
        )


def rigid_shape(gpus: int, gpus_per_node: int) -> Shape:
    """One worker up to a node, whole nodes above: (workers, GPUs per worker)."""
    if gpus <= gpus_per_node:
        return (1, gpus)
    return (math.ceil(gpus / gpus_per_node), gpus_per_node)


def epochs_of(duration_s: float, epoch_s: float = EPOCH_S) -> int:
    """round(duration / epoch), at least 1, at most 1,000."""
    return min(MOST_EPOCHS, max(1, round(duration_s / epoch_s)))


def truths(
    trace: Trace, *, elastic: bool, gpus_per_node: int, pooled: bool, epoch_s: float = EPOCH_S
) -> list[Truth]:
    """All jobs of a trace; `elastic` widens those that have a throughput table."""
    return [
        _truth(
            job,
            number,
            name,
            elastic=elastic,
            gpus_per_node=gpus_per_node,
            pooled=pooled,
            epoch_s=epoch_s,
        )
        for number, (job, name) in enumerate(zip(trace.jobs, names_of(trace), strict=True))
    ]


def names_of(trace: Trace) -> list[str]:
    """Namespace and id of each job; one that was there before gets a number."""
    known: dict[str, int] = {}
    found = []
    for job in trace.jobs:
        name = f"{job.namespace or 'default'}/{job.id}"
        again = known[name] = known.get(name, 0) + 1
        found.append(name if again == 1 else f"{name}.{again}")
    return found


def _truth(
    job: TraceJob,
    number: int,
    name: str,
    *,
    elastic: bool,
    gpus_per_node: int,
    pooled: bool,
    epoch_s: float,
) -> Truth:
    epochs = epochs_of(job.duration_s, epoch_s)
    if elastic and job.table is not None:
        widths, per_worker = job.table.levels, 1
        took = {w: job.iterations / epochs / job.table.speed(w) for w in widths}
    else:
        workers, per_worker = (1, job.gpus) if pooled else rigid_shape(job.gpus, gpus_per_node)
        widths, took = (workers,), {workers: job.duration_s / epochs}
    return Truth(
        id=name,
        number=number,
        submitted_at=job.submitted_at,
        epochs=epochs,
        widths=widths,
        epoch_s=took,
        gpus_per_worker=per_worker,
        deadline_at=job.deadline_at,
        service_class=job.service_class,
        model=job.model,
        ideal_s=job.duration_s,
        asked_gpus=job.gpus,
        # each trace job is a history of its own: its key is its name
        workload=Workload(model=name, epochs=epochs, batch_size=job.batch_size),
    )


def error_factor(job_id: str, *, sigma: float, seed: int) -> float:
    """exp(sigma z): z is drawn from the standard normal distribution by seed and the job's id."""
    if sigma == 0.0:
        return 1.0
    draw = np.random.default_rng([seed, zlib.crc32(job_id.encode())]).standard_normal()
    return math.exp(sigma * float(draw))


def sigma_of(error: float) -> float:
    """The spread of log-normal factors whose mean absolute error is about `error` (0.2: 20 %)."""
    return error * math.sqrt(math.pi / 2.0)


def belief_errors(factors: Floats, epochs: Floats, percent: int) -> Floats:
    """How far the rest is believed from the truth when so many epochs in a hundred are done.

    Both of shape (n,): errors drawn at the start, and all epochs of each job.
    """
    return np.asarray(np.abs(factors ** (1.0 / (1.0 + np.floor(epochs * percent / 100.0))) - 1.0))


class Belief:
    """A Predictor with a stated error.

    A job's epochs are believed to take exp(sigma z) times what they take, z drawn per job. Once k
    of its epochs have been observed, the logarithm of the error has shrunk to 1 / (1 + k) of it.
    The quantiles are those of this distribution. Costs of starts and stops are known.
    """

    def __init__(
        self, jobs: Iterable[Truth], costs: Costs, *, error: float = 0.0, seed: int = 0
    ) -> None:
        """`error` is the mean absolute error as a share: 0.2 for 20 %."""
        self.costs = costs
        self.error = error
        self.seed = seed
        self.sigma = sigma_of(error)
        self._truth = {job.workload.model: job for job in jobs}
        self._factor = {
            key: error_factor(key, sigma=self.sigma, seed=seed) if error else 1.0
            for key in self._truth
        }

    @property
    def version(self) -> str:
        return f"simulated error={self.error:g} seed={self.seed} costs={self.costs.name}"

    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        return self._estimate(workload, workers, 1, 0)

    def remaining(self, workload: Workload, progress: Progress, workers: int) -> Estimate:
        left = max(0, workload.epochs - progress.epochs_done)
        return self._estimate(workload, workers, left, len(progress.epoch_s))

    def table(self, asks: Sequence[Ask]) -> Estimates:
        rows = [self.remaining(ask.workload, ask.progress, ask.workers) for ask in asks]
        p10, p50, mean, p90 = (
            np.array(
                [(row.p10_s, row.p50_s, row.mean_s, row.p90_s) for row in rows], dtype=np.float64
            )
            .reshape(len(rows), 4)
            .T
        )
        points = np.array([row.n_points for row in rows], np.int64)
        return Estimates(p10, p50, mean, p90, tuple([row.source for row in rows]), points)

    def suspend_cost(self, workload: Workload, workers: int) -> Estimate:
        return _sure(self.costs.stop_s(self._gpus(workload, workers)))

    def resume_cost(self, workload: Workload, workers: int) -> Estimate:
        return _sure(self.costs.start_s(self._gpus(workload, workers)))

    def to_json(self) -> dict[str, object]:
        return {
            "kind": "simulated",
            "error": self.error,
            "seed": self.seed,
            "costs": self.costs.name,
        }

    def _gpus(self, workload: Workload, workers: int) -> int:
        truth = self._truth.get(workload.model)
        return workers * (truth.gpus_per_worker if truth else 1)

    def _estimate(self, workload: Workload, workers: int, epochs: int, seen: int) -> Estimate:
        truth = self._truth.get(workload.model)
        epoch_s = None if truth is None else truth.epoch_s.get(workers)
        if epoch_s is None:
            return Estimate(0.0, FOREVER, FOREVER, FOREVER, "prior", 0)
        total_s = epochs * epoch_s
        if self.sigma == 0.0:
            return Estimate(total_s, total_s, total_s, total_s, "truth", seen)
        shrunk = 1.0 / (1 + seen)
        spread = self.sigma * shrunk
        middle_s = total_s * self._factor[workload.model] ** shrunk
        wide = math.exp(Z90 * spread)
        mean_s = middle_s * math.exp(spread * spread / 2.0)
        return Estimate(middle_s / wide, middle_s, mean_s, middle_s * wide, "history", seen)


def _sure(seconds: float) -> Estimate:
    return Estimate(seconds, seconds, seconds, seconds, "truth")
