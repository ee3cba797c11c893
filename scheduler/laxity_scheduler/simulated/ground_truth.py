"""What really happens to a simulated job. Policies never see this: they ask a Predictor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from laxity.job.qos import ServiceClass
from laxity_profiler.estimate import Workload
from laxity_scheduler.model.job import FOREVER, Job


@dataclass(frozen=True, slots=True)
class GroundTruth:
    """One job as it really is. `epoch_s` is the time of one epoch by width, without any cost.

    `start_s` and `stop_s` are its own costs by width; where it has none, those of the cluster.
    `epoch_s_on` has the time of an epoch by product of GPU, where these differ.
    """

    id: str
    number: int  # place in the trace
    submitted_at: float
    epochs: int
    widths: tuple[int, ...]
    epoch_s: Mapping[int, float]
    gpus_per_worker: int = 1
    deadline_at: float = FOREVER
    service_class: ServiceClass = "best_effort"
    ideal_s: float = 0.0  # alone, at the width asked for
    asked_gpus: int = 1
    workload: Workload = field(default=Workload("", 1))
    eligible: str = ""
    wall_limit_s: float = FOREVER  # of one start
    group: str = ""
    step: str = ""
    after: tuple[str, ...] = ()
    start_s: Mapping[int, float] = field(default_factory=dict)
    stop_s: Mapping[int, float] = field(default_factory=dict)
    epoch_s_on: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def times_on(self, product: str) -> Mapping[int, float]:
        """The time of one epoch by width on this product."""
        return self.epoch_s_on.get(product, self.epoch_s)

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
            wall_limit_s=self.wall_limit_s,
            group=self.group,
            step=self.step,
            after=self.after,
        )
