"""One job as policies see it: its terms, its verdict, what it holds, and how far its training is.

A row changes when something happened to its job, never because time passed; what a job has done at
`now` is a function of its row and a predictor. What a worker requests of its node is here as well.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from laxity.job.qos import OnMiss, ServiceClass
from laxity_profiler.estimate import NO_PROGRESS, Progress, Workload
from laxity_scheduler.model.reasons import Reason

Amounts = Mapping[str, int]  # by resource; None in its place: plenty of everything
Needs = tuple[tuple[str, int], ...]  # (resource, amount) beside GPUs, in order
GIB: Final = 1 << 30
MIB: Final = 1 << 20
BYTES: Final = ("memory", "ephemeral-storage")
PORT: Final = "host port "  # begins the name of a port of the node; there is one of each
OfferKind = Literal["deadline", "widths", "borrow", "lent", "probe", "soft"]
Runs = tuple[tuple[float, int], ...]  # reserved widths over time: (until_at, workers), in order
FOREVER: Final = float("inf")
MINUTE_S: Final = 60.0
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S


class WorkerShape(NamedTuple):
    """GPUs of one worker, and what else it requests."""

    gpus: int
    needs: Needs = ()


class NodeRoom(NamedTuple):
    """What a node has: GPUs, and amounts of everything else that workers request."""

    gpus: int
    amounts: Amounts | None = None


def workers_that_fit(node: NodeRoom, shape: WorkerShape) -> int:
    """How many workers of this shape a node holds: the least over all that they request."""
    workers = max(0, node.gpus) // shape.gpus
    if node.amounts is None:
        return workers
    for resource, amount in shape.needs:
        workers = min(workers, max(0, amount_of(node.amounts, resource)) // amount)
    return workers


def find_scarce(node: NodeRoom, shape: WorkerShape, workers: int) -> str:
    """What a node has too little of for so many workers; "" if there is enough of all but GPUs."""
    amounts = node.amounts
    if amounts is None:
        return ""
    scarce = (name for name, each in shape.needs if amount_of(amounts, name) < workers * each)
    return next(scarce, "")


def describe_needs(needs: Needs) -> str:
    """In words, as pods ask for it; that a pod is one of its node's is nobody's wish."""
    return ", ".join(_describe(name, amount) for name, amount in needs if name != "pods")


def _describe(name: str, amount: int) -> str:
    if name.startswith(PORT):
        return name
    if name == "cpu":
        return f"cpu {amount / 1000:g}"
    if name in BYTES and amount >= MIB:
        return f"{name} {amount / GIB:.4g}Gi" if amount >= GIB else f"{name} {amount / MIB:.4g}Mi"
    return f"{name} {amount}"


def amount_of(amounts: Amounts, resource: str) -> int:
    return amounts.get(resource, int(resource.startswith(PORT)))


def spend(amounts: Amounts, needs: Needs, workers: int) -> dict[str, int]:
    """What is left when so many workers more are there; fewer than 0 give back."""
    left = {resource: amount_of(amounts, resource) - workers * amount for resource, amount in needs}
    return {**amounts, **left}


@dataclass(frozen=True, slots=True)
class Promise:
    """The deadline will be kept with 90 % confidence. `runs` are the reserved widths over time."""

    deadline_at: float
    p50_at: float
    p90_at: float
    runs: Runs
    reason: Reason
    rests_on: tuple[str, ...] = ()  # sources of the predictions, and the jobs promised before it
    gpu_type: str = ""  # the product on which it is kept


class PendingPromise(NamedTuple):
    """A promise of the decision in the making: said in full once it is known how it is kept."""

    deadline_at: float
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be promised instead; checked on the snapshot of `checked_at`, not held.

    `kind` says which one thing differs from what was asked: a later deadline, other widths,
    capacity that would have to be added, class soft on GPUs that inference has lent, a probe of two
    epochs, or class soft. On lent GPUs nothing is promised: `p50_at` is the best guess.
    """

    kind: OfferKind
    deadline_at: float
    widths: tuple[int, ...]
    p90_at: float
    checked_at: float
    gpus_borrowed: int = 0
    p50_at: float = float("inf")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing is promised: the job holds nothing. `offers` are in the order of least change."""

    reason: Reason
    offers: tuple[Offer, ...] = ()
    p90_at: float = float("inf")


@dataclass(frozen=True, slots=True)
class Forecast:
    """For soft and best-effort jobs: when it is expected to end; `late_by_s` is 0 if in time."""

    p50_at: float
    p90_at: float
    late_by_s: float
    reason: Reason


Verdict = Promise | Refusal | Forecast


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
    pending: str = ""  # why one that has not started has not, as its pod tells it
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
    def has_begun(self) -> bool:
        """Whether it has ever had workers, also where they were stopped before their first epoch's end."""
        return bool(self.workers or self.progress.epochs_done) or self.resumed_at is not None

    def changed_now(self, now: float) -> bool:
        """Whether it was started or resized at this instant: it is let be until a later one."""
        return self.width_changed_at is not None and self.width_changed_at >= now

    def width_without(self, nodes: Collection[str]) -> int:
        """The widest of its widths that has no worker on these nodes; 0 if there is none."""
        first = next(
            (place for place, name in enumerate(self.nodes) if name in nodes), self.workers
        )
        return max((width for width in self.widths if width <= first), default=0)

    @property
    def refused(self) -> bool:
        return isinstance(self.verdict, Refusal)

    @property
    def promise(self) -> Runs | None:
        """The reserved widths over time, if the job holds a promise."""
        return self.verdict.runs if isinstance(self.verdict, Promise) else None
