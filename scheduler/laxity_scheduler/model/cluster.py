"""The cluster at one instant: what policies see, and all that they see.

What the inference fleet needs is made by whoever knows the fleet and travels along. A demand that makes
no sense is refused where it is made; one that no longer fits the fleet or the clock is read as the
nearest that does (`lendable_gpus`, `due_at`), and `find_problems` says so.
"""

from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isnan
from operator import attrgetter, gt
from typing import Any, Literal, get_args

from laxity_scheduler.model.job import FOREVER, Amounts, Job, Promise

Pool = Literal["training", "inference", "loaned", "cordoned", "coming"]
CLOSED_POOLS: tuple[Pool, ...] = ("inference", "cordoned")  # pools whose nodes take no new workers
PROMISABLE_POOLS: tuple[Pool, ...] = ("training", "coming")  # that promises may rest on
LENT_POOLS: tuple[Pool, ...] = ("loaned",)  # of inference's nodes that training may use
FLEET_POOLS: tuple[Pool, ...] = ("inference", "loaned")  # of inference's nodes, lent or not
HOLD_S = 600.0  # so long GPUs are kept for the job that they were freed for
NO_NODES: frozenset[str] = frozenset()


class DemandError(ValueError):
    """A demand that cannot be: not a number, or negative."""


@dataclass(frozen=True, slots=True)
class InferenceDemand:
    """GPUs that inference needs now, and at most until `horizon_at`, head-room included.

    `reclaim_by` is when GPUs that it needs and that are lent must be back; the past means at once.
    `outlook` looks further: at most so many GPUs are forecast to be needed up to each instant, in
    order. Nothing is lent by it: what is lent rests on the horizon.
    """

    needed_gpus: float
    forecast_gpus: float = 0.0
    horizon_at: float = FOREVER
    reclaim_by: float = FOREVER
    outlook: tuple[tuple[float, float], ...] = ()  # (until_at, GPUs), neither ever falls

    def __post_init__(self) -> None:
        for name in ("needed_gpus", "forecast_gpus"):
            gpus = getattr(self, name)
            if isnan(gpus) or gpus < 0:
                message = f"inference demand: {name} is {gpus}; give a number of GPUs, 0 or more"
                raise DemandError(message)
        for name in ("horizon_at", "reclaim_by"):
            if isnan(getattr(self, name)):
                message = f"inference demand: {name} is not a number; give an instant in seconds"
                raise DemandError(message)

    @property
    def peak_gpus(self) -> float:
        """The most that is needed until the horizon."""
        return max(self.needed_gpus, self.forecast_gpus)

    def lendable_gpus(self, pool_gpus: int) -> float:
        """GPUs of a fleet of so many that may be lent until the horizon."""
        return max(0.0, pool_gpus - self.peak_gpus)

    def idle_until_at(self, gpus: float, pool_gpus: int) -> float:
        """Until when so many of the fleet's GPUs are forecast idle; 0 if they are not even now."""
        if gpus > self.lendable_gpus(pool_gpus):
            return 0.0
        idle = [until_at for until_at, needed in self.outlook if gpus <= pool_gpus - needed]
        return max([self.horizon_at, *idle])

    def due_at(self, now: float) -> float:
        """When lent GPUs must be back, never in the past."""
        return max(now, self.reclaim_by)

    def find_problems(self, pool_gpus: int, now: float) -> list[str]:
        """What does not fit this fleet at this instant, and how it is read instead."""
        problems = []
        if self.peak_gpus > pool_gpus:
            problems.append(
                f"inference needs {self.peak_gpus:g} GPUs and has {pool_gpus}: all are kept for it"
            )
        if self.reclaim_by < now:
            late_s = now - self.reclaim_by
            problems.append(f"GPUs were wanted back {late_s:.0f}s ago: they are wanted back now")
        if self.horizon_at < now:
            problems.append("the forecast has run out: nothing more is lent")
        return problems


@dataclass(frozen=True, slots=True)
class Coming:
    """When a node that is not there yet comes, counted from a start on it: at P90, and at P50."""

    pool: str
    within_s: float
    usually_s: float

    @property
    def facts(self) -> tuple[tuple[str, str | float], ...]:
        """For a reason."""
        return (("pool", self.pool), ("within_s", self.within_s), ("usually_s", self.usually_s))


@dataclass(frozen=True, slots=True)
class Node:
    """A machine. `free_gpus` counts GPUs of terminating pods and of other people's pods as busy.

    It is negative by the GPUs that workers hold beyond those that the machine lists: what they give
    back first is no longer there. `away_gpus` are idle and take no worker for a moment: plans count on
    them.
    `room` is what else its workers may request in all, `free_room` what of it is free; None: plenty.
    `trouble` says why its idle GPUs take no worker and no plan counts on them (a full disk).
    A node in pool cordoned is about to be drained: it takes no new workers, and its own leave. A lent
    node (pool loaned) may be wanted back from `reclaim_at` on. One in pool coming is not there: an
    autoscaler adds it once pods wait for it, as `coming` says.
    """

    id: str
    gpus: int
    free_gpus: int
    gpu_type: str = ""
    pool: Pool = "training"
    reclaim_at: float = FOREVER
    away_gpus: int = 0
    room: Amounts | None = None
    free_room: Amounts | None = None
    coming: Coming | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class NodeSet:
    """The nodes that some jobs may use, and in words what shuts these jobs out of the others."""

    nodes: frozenset[str]
    shut_out: str = ""


@dataclass(frozen=True, slots=True)
class SetCapacity:
    """Nodes of a set by their GPUs: those that training may use, and those that promises rest on."""

    usable: Mapping[int, int]
    training: Mapping[int, int]
    free_gpus: int
    _slots: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    def slots(self, gpus_per_worker: int) -> int:
        """How many workers of that size they hold when they are empty."""
        if gpus_per_worker not in self._slots:
            sizes = self.usable.items()
            slots = sum(count * (gpus // gpus_per_worker) for gpus, count in sizes)
            self._slots[gpus_per_worker] = slots
        return self._slots[gpus_per_worker]


@dataclass(frozen=True, slots=True)
class Hold:
    """GPUs that a preempted job freed on a node, kept for the job they were freed for."""

    job: str
    node: str
    gpus: int
    until_at: float


def binds(job: Job | None) -> bool:
    """Whether nobody else may have what is held for this job: it waits with a promise, or is not known.

    Who runs already may turn out to need no more, and who has no promise makes way for one.
    """
    return job is None or (not job.workers and is_promised(job))


def is_promised(job: Job | None, now: float = 0.0) -> bool:
    """Whether it has a promise whose deadline is not over by then."""
    return job is not None and isinstance(job.verdict, Promise) and now <= job.verdict.deadline_at


def limit_holds(
    holds: Sequence[Hold], most: Mapping[str, int], jobs: Mapping[str, Job]
) -> list[Hold]:
    """The holds with at most so many GPUs on these nodes; those that bind keep theirs first."""
    left, kept = dict(most), dict[int, Hold]()
    order = sorted(range(len(holds)), key=lambda at: not binds(jobs.get(holds[at].job)))
    for at in order:
        hold = holds[at]
        gpus = min(hold.gpus, max(0, left.get(hold.node, hold.gpus)))
        if hold.node in left:
            left[hold.node] -= gpus
        if gpus:
            kept[at] = hold if gpus == hold.gpus else replace(hold, gpus=gpus)
    return [kept[at] for at in sorted(kept)]


def cut_holds(
    holds: Sequence[Hold],
    taken: Mapping[str, int],
    free: Mapping[str, int],
    jobs: Mapping[str, Job],
) -> list[Hold]:
    """The holds when so many GPUs of nodes are taken by jobs for which nothing of them was held."""
    held = Counter[str]()
    for hold in holds:
        held[hold.node] += hold.gpus
    lost = {
        node: gpus - max(0, free[node] - held[node]) for node, gpus in taken.items() if held[node]
    }
    return limit_holds(
        holds, {node: held[node] - max(0, gpus) for node, gpus in lost.items()}, jobs
    )


@dataclass(frozen=True, slots=True)
class Reserved:
    """GPUs that a promised group keeps for a step whose jobs are not there yet.

    Of a set of nodes and of a quota, as its jobs will name them.
    """

    step: str  # "namespace/group/step"
    from_at: float
    until_at: float
    gpus: int
    eligible: str = ""
    quota: str = ""
    gpus_per_worker: int = 1


@dataclass(frozen=True)
class NodePools:
    """n nodes by name, and the pool of each."""

    names: tuple[str, ...]
    pools: tuple[Pool, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Pool]:
        return dict(zip(self.names, self.pools, strict=True))

    @cached_property
    def names_by_pool(self) -> Mapping[Pool, frozenset[str]]:
        """The nodes of each pool; every pool has its entry."""
        pairs = list(zip(self.names, self.pools, strict=True))
        return {
            pool: frozenset([name for name, mine in pairs if mine == pool])
            for pool in get_args(Pool)
        }

    @property
    def lent(self) -> frozenset[str]:
        return self.names_by_pool["loaned"]

    @cached_property
    def open(self) -> frozenset[str]:
        """Nodes that are there and take new workers."""
        return self.names_by_pool["training"] | self.lent


@dataclass(frozen=True)
class ClusterState:
    """A snapshot. Jobs are the unfinished ones, in order of submission, then id.

    `sets` are the sets of nodes that jobs name which may not use all of them; None: all may.
    `quotas` are how many GPUs the jobs that name a quota may have at once, together. `inference` is
    what the inference fleet needs of its nodes; None: nothing is lent. `memory` is what readers keep
    from one snapshot of a world to its next; no answer depends on it.
    """

    now: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    holds: tuple[Hold, ...] = ()
    budgets: Mapping[str, float] | None = None  # promised GPU-seconds allowed per namespace
    cycle: int = 0
    sets: Mapping[str, NodeSet] | None = None
    quotas: Mapping[str, int] | None = None
    inference: InferenceDemand | None = None
    reserved: tuple[Reserved, ...] = ()  # promises are given only on what these leave
    predictability: float = 0.0  # 0 to 1: how little newcomers may overtake best-effort jobs
    memory: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def node_pools(self) -> "NodePools":
        """Which node is in which pool; the same object as long as no node changes its pool."""
        names, pools = tuple([node.id for node in self.nodes]), tuple([n.pool for n in self.nodes])
        last: NodePools | None = self.memory.get("pools")
        if last is None or last.names != names or last.pools != pools:
            last = self.memory["pools"] = NodePools(names, pools)
        return last

    @cached_property
    def quota_left(self) -> Mapping[str, int]:
        """GPUs that each quota leaves now; less than 0 where it was lowered."""
        left = Counter(self.quotas or {})
        for job in self.jobs if left else ():
            if job.quota in left:
                left[job.quota] -= (job.workers + job.terminating_workers) * job.gpus_per_worker
        return left

    def with_job(self, job: Job) -> "ClusterState":
        """With this row of a job; itself if it has it."""
        row = self.by_id.get(job.id)
        if row is job:
            return self
        if row is None:
            return replace(self, jobs=(*self.jobs, job)).in_submission_order
        return replace(self, jobs=tuple([job if other is row else other for other in self.jobs]))

    def lock_holds(self, jobs: Container[str]) -> "ClusterState":
        """The snapshot where what is held for these jobs stays held: nothing is decided on them.

        A decision that opened their holds, for them and for others, would not be carried out.
        """
        if not any(hold.job in jobs for hold in self.holds):
            return self
        holds = [replace(hold, job="") if hold.job in jobs else hold for hold in self.holds]
        return replace(self, holds=tuple(holds))

    def eligible_nodes(self, job: Job) -> frozenset[str] | None:
        """The nodes that the job may use; None for all nodes."""
        return self.nodes_of_set(job.eligible)

    def nodes_of_set(self, name: str) -> frozenset[str] | None:
        """The nodes of a set by its name; None for all nodes ("" as a name). An unknown set has none."""
        if not name:
            return None
        node_set = (self.sets or {}).get(name)
        return NO_NODES if node_set is None else node_set.nodes

    def capacity(self, name: str) -> "SetCapacity":
        """The GPUs on the nodes of a set by its name, of all nodes for "", as `nodes_of_set`."""
        if name not in self._capacities:
            may = self.nodes_of_set(name)
            nodes = [node for node in self.nodes if node.pool not in CLOSED_POOLS]
            nodes = nodes if may is None else [node for node in nodes if node.id in may]
            usable = Counter([node.gpus for node in nodes])
            training = Counter([node.gpus for node in nodes if node.pool in PROMISABLE_POOLS])
            free_gpus = sum([max(0, node.free_gpus) for node in nodes if node.pool != "coming"])
            self._capacities[name] = SetCapacity(usable, training, free_gpus)
        return self._capacities[name]

    @cached_property
    def troubled(self) -> tuple[Node, ...]:
        """Nodes that are open for training, and whose idle GPUs take no worker now."""
        open_nodes = (node for node in self.nodes if node.pool not in CLOSED_POOLS)
        return tuple([node for node in open_nodes if node.trouble])

    @cached_property
    def _capacities(self) -> dict[str, "SetCapacity"]:
        """Those that were asked for."""
        return {}

    @property
    def in_submission_order(self) -> "ClusterState":
        """The state with its jobs in order of submission; the same object if they are."""
        instants = [job.submitted_at for job in self.jobs]
        if not any(map(gt, instants, instants[1:])):
            return self
        return replace(self, jobs=tuple(sorted(self.jobs, key=attrgetter("submitted_at"))))

    @cached_property
    def by_id(self) -> Mapping[str, Job]:
        return dict(zip(map(attrgetter("id"), self.jobs), self.jobs, strict=True))

    @cached_property
    def queued(self) -> tuple[Job, ...]:
        """Jobs that may be started: suspended, all pods gone, not refused, not pinned."""
        idle = [job for job in self.jobs if not (job.workers or job.terminating_workers)]
        return tuple([job for job in idle if not (job.refused or job.pinned)])

    @cached_property
    def running(self) -> tuple[Job, ...]:
        return tuple([job for job in self.jobs if job.workers])

    def count_gpus(self, pools: Collection[Pool]) -> int:
        """GPUs of all nodes of these pools, free or not."""
        return sum(node.gpus for node in self.nodes if node.pool in pools)

    @cached_property
    def total_gpus(self) -> int:
        """GPUs that are there in all, but for those that inference keeps to itself."""
        return sum(node.gpus for node in self.nodes if node.pool not in ("inference", "coming"))

    @cached_property
    def free_gpus(self) -> int:
        """Free GPUs for trainings in all; what fits is counted per node: `Ledger.slots`."""
        shut = (*CLOSED_POOLS, "coming")
        return sum([max(0, node.free_gpus) for node in self.nodes if node.pool not in shut])
