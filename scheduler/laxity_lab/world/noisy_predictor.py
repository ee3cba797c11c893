"""What policies are told of simulated jobs: how long they take, with an error of a stated size."""

from collections.abc import Iterable, Sequence

from laxity_lab.world.trace_truths import error_factors, sigma_of
from laxity_profiler.estimate import Ask, Estimate, Estimates, Progress, Workload
from laxity_scheduler.simulated.beliefs import UNKNOWN, believed, certain
from laxity_scheduler.simulated.change_costs import Costs
from laxity_scheduler.simulated.ground_truth import GroundTruth


class NoisyPredictor:
    """A Predictor with a stated error.

    Each job has an error factor drawn by its id; how it shrinks: `simulated.beliefs`. Costs of starts
    and stops are known.
    """

    def __init__(
        self, jobs: Iterable[GroundTruth], costs: Costs, *, error: float = 0.0, seed: int = 0
    ) -> None:
        """`error` is the mean absolute error as a share: 0.2 for 20 %."""
        self.costs = costs
        self.error = error
        self.seed = seed
        self.sigma = sigma_of(error)
        self._truth = {job.workload.model: job for job in jobs}
        factors = error_factors(self._truth, error=error, seed=seed)
        self._factor = dict(zip(self._truth, factors, strict=True))

    @property
    def version(self) -> str:
        return f"simulated error={self.error:g} seed={self.seed} costs={self.costs.name}"

    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        return self._estimate(workload, workers, 1, 0)

    def remaining(self, workload: Workload, progress: Progress, workers: int) -> Estimate:
        left = max(0, workload.epochs - progress.epochs_done)
        return self._estimate(workload, workers, left, len(progress.epoch_s))

    def table(self, asks: Sequence[Ask]) -> Estimates:
        return Estimates.of(
            [self.remaining(ask.workload, ask.progress, ask.workers) for ask in asks]
        )

    def suspend_cost(self, workload: Workload, workers: int) -> Estimate:
        return certain(self.costs.stop_s(self._gpus(workload, workers)))

    def resume_cost(self, workload: Workload, workers: int) -> Estimate:
        return certain(self.costs.start_s(self._gpus(workload, workers)))

    def finishing_time(self, workload: Workload, workers: int) -> Estimate:
        return certain(0.0)

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
        epoch_s = None if truth is None else truth.times_on(workload.gpu_type).get(workers)
        if epoch_s is None:
            return UNKNOWN
        factor = self._factor[workload.model]
        return believed(epochs * epoch_s, factor=factor, sigma=self.sigma, seen=seen)
