"""One job as policies see it: its terms, what it holds, and how far its training is.

A row changes when something happened to its job, never because time passed; what a job has done at
`now` is a function of its row and a predictor.
"""

from dataclasses import dataclass
from typing import Final

from laxity.job.qos import OnMiss, ServiceClass
from laxity_profiler.estimate import NO_PROGRESS, Progress, Workload
from laxity_scheduler.model.verdict import Promise, Refusal, Runs, Verdict
from laxity_scheduler.model.worker_shape import Needs, WorkerShape

FOREVER: Final = float("inf")
MINUTE_S: Final = 60.0
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Job:
    """One training job. Instants are seconds; `workers` 0 means suspended.

    `nodes` has one entry per worker index. `progress` and `attained_gpu_s` are as of `since`.
    `formed` is the width that the training really runs at (new workers join at an epoch's end);
    `resize_to` a width asked for at the next epoch's end, 0 if none; `parked_epoch` the epoch after
    which it saved and waits to be stopped, or None. One that holds no state begins at epoch 1 after each
    stop, and with each change of its width. A pinned job is counted and never touched.
    """

    id: str
    workload: Workload
    submitted_at: float
    deadline_at: float = FOREVER
    service_class: ServiceClass = "best_effort"
    widths: tuple[int, ...] = (1,)
    gpus_per_worker: int = 1
    workers: int = 0
    nodes: tuple[str, ...] = ()
    terminating_workers: int = 0
    progress: Progress = NO_PROGRESS
    since: float = 0.0
    attained_gpu_s: float = 0.0
    preemptible: bool = True
    preemptions: int = 0
    verdict: Verdict | None = None
    queued_at: float = 0.0
    resumed_at: float | None = None
    width_changed_at: float | None = None
    epoch_started_at: float | None = None
    stop_requested_at: float | None = None
    stop_for: str = ""
    formed: int = 0
    resize_to: int = 0
    parked_epoch: int | None = None
    pinned: bool = False
    on_miss: OnMiss = "continue"
    wall_limit_s: float = FOREVER  # of one start: a longer training is a chain of them
    active_deadline_s: float = FOREVER  # of one start that is no link: Kubernetes kills it then
    asked: bool = True  # wants a verdict: new, or its deadline was changed
    fitting_workers: int | None = None  # not all pods ran in time: so many indexes do, from 0 up
    died: str = ""  # why a worker that should run has failed, as its pod tells it; "": none has
    pending: str = ""  # why one that did not start in time has not, as its pod tells it
    cannot_end: str = ""  # its pods that should have ended and have not, in words; "": none
    failed_starts: int = 0  # in a row
    not_before: float = 0.0  # after that many it is not tried again until then
    start_seen: bool = True  # by who makes its pods; before that it is not suspended again
    displaced: str = ""  # why a worker cannot come back to its node, in words; "": none has to
    eligible: str = ""  # of which set of nodes it may use (`ClusterState.sets`); "": of all
    quota: str = ""  # which bounds its GPUs with those of others (`ClusterState.quotas`); "": none
    holds_state: bool = True
    stops_anywhere: bool = False  # told to stop, it saves after the step in flight, inside an epoch
    saved_part: float = 0.0  # of the next epoch, that a checkpoint holds; 0 while one is in flight
    needs: Needs = ()  # of a worker beside GPUs, where they may be scarcer on nodes than GPUs
    restarted_at: float | None = None  # its start counts from then: a failure, its nodes' coming
    group: str = ""  # of the jobs that have one deadline together; its `deadline_at` is its share
    step: str = ""
    after: tuple[str, ...] = ()  # steps of its group that must have finished before
    reports: bool = (
        True  # its workers say how far they are; of others no start is ever over, or overdue
    )

    @property
    def namespace(self) -> str:
        return self.id.partition("/")[0]

    @property
    def gpus(self) -> int:
        """GPUs of the workers that should run now (not of those still terminating)."""
        return self.workers * self.gpus_per_worker

    @property
    def shape(self) -> WorkerShape:
        """What each of its workers requests of a node."""
        return WorkerShape(self.gpus_per_worker, self.needs)

    @property
    def start_began_at(self) -> float | None:
        """When the last start of its workers began: by a decision, anew after a failure, or later.

        It lies ahead while nodes have to come first.

        None where nobody can know when it is over.
        """
        if not self.reports:
            return None
        return self.resumed_at if self.restarted_at is None else self.restarted_at

    @property
    def refused(self) -> bool:
        return isinstance(self.verdict, Refusal)

    @property
    def promise(self) -> Runs | None:
        """The reserved widths over time, if the job holds a promise."""
        return self.verdict.runs if isinstance(self.verdict, Promise) else None
