"""A policy that is an order: a key that does not change while a job waits, widths, a packing rule.

Nobody is stopped or resized. Jobs of one width can be simulated without a snapshot at every event:
`pack` keeps the queue by shapes between events and starts the same jobs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Literal, Protocol

from laxity_profiler.estimate import Predictor
from laxity_scheduler.capacity.eligibility import never_starts, no_free_gpus, requests_full
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Decision, Wait
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.plan import Plan

Packing = Literal["skip", "strict"]
Shape = tuple[int, int]  # (workers, GPUs per worker)
Widths = tuple[Sequence[int], float]
CLASSES: Final = ("hard", "soft", "best_effort")
POOL: Final = ("pool",)
CLASS_APART_S: Final = 1e11  # more than any key


class GpuSource(Protocol):
    """What `pack` spends from: a Ledger, or a Pool that ignores nodes."""

    @property
    def total_free(self) -> int: ...

    def place(self, workers: int, gpus_per_worker: int) -> tuple[str, ...] | None: ...

    def give(self, nodes: Sequence[str], gpus_per_worker: int) -> None: ...


def least_width(job: Job, forecasts: Forecasts) -> Widths:
    return job.widths[:1], FOREVER


@dataclass(frozen=True, slots=True)
class Order:
    """`key(submitted_at, deadline_at, mean_run_s(), gpus)`: the least starts first.

    `widths`: those that a job may start on, best first, and until when it would be these.
    `hard_first`: hard jobs before soft ones, and both before the others, each in order of the key.
    Packing `strict`: the head blocks the others. `skip`: what does not fit is passed over.
    """

    name: str
    key: Callable[[float, float, Callable[[], float], int], float]
    widths: Callable[[Job, Forecasts], Widths] = least_width
    packing: Packing = "skip"
    hard_first: bool = False

    def sort_key(self, service_class: str, key: float) -> float:
        """What waiting jobs are sorted by."""
        return key + CLASS_APART_S * CLASSES.index(service_class) if self.hard_first else key


Lane = tuple[int, Shape, list[tuple[float, int]]]  # GPUs, shape, heap of (key, number)


class Queue:
    """Waiting jobs by shape, each shape a heap of (key, number).

    What does not fit is passed over a shape at a time, which equals walking the whole queue, since
    free GPUs only shrink meanwhile. A shape that did not fit stays blocked until GPUs are given
    back (`note_freed_gpus`). `stirred` says whether anything has changed since the last packing.
    """

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.blocked: set[Shape] = set()
        self.stirred = False
        self._heaps: dict[Shape, list[tuple[float, int]]] = {}

    def add(self, shape: Shape, key: float, number: int) -> None:
        """A job waits. Equal keys start in order of number."""
        heap = self._heaps.get(shape)
        if heap is None:
            heap = self._heaps[shape] = []
            self.lanes.append((shape[0] * shape[1], shape, heap))
        heappush(heap, (key, number))
        if shape not in self.blocked:
            self.stirred = True

    def note_freed_gpus(self) -> None:
        """GPUs were given back: what did not fit may fit now."""
        self.blocked.clear()
        self.stirred = True


def pack(queue: Queue, room: GpuSource, packing: Packing) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Start all that fits, in order: yields (number, nodes), taken from queue and room."""
    blocked, free = queue.blocked, room.total_free
    strict = packing == "strict"
    heads = [
        (heap[0], gpus, shape, heap)
        for gpus, shape, heap in queue.lanes
        if heap and (strict or (gpus <= free and shape not in blocked))
    ]
    queue.stirred = False
    if len(heads) > 1:
        heapify(heads)
    place = room.place
    while heads:
        (_, number), gpus, shape, heap = heads[0]
        nodes = place(shape[0], shape[1]) if gpus <= room.total_free else None
        if nodes is None:
            if strict:
                return
            if gpus <= room.total_free:
                blocked.add(shape)
            heappop(heads)
            continue
        heappop(heap)
        if heap:
            heapreplace(heads, (heap[0], gpus, shape, heap))
        else:
            heappop(heads)
        yield number, nodes


class Pool:
    """A GpuSource that ignores nodes: one big pool of GPUs, which are the places of workers."""

    __slots__ = ("total_free",)

    def __init__(self, gpus: int) -> None:
        self.total_free = gpus

    def place(self, workers: int, gpus_per_worker: int) -> tuple[str, ...] | None:
        gpus = workers * gpus_per_worker
        if gpus > self.total_free:
            return None
        self.total_free -= gpus
        return POOL if workers == 1 else POOL * workers

    def give(self, nodes: Sequence[str], gpus_per_worker: int) -> None:
        self.total_free += len(nodes) * gpus_per_worker


def policy_of(order: Order) -> Callable[[ClusterState, Predictor], Plan]:
    """The order as a policy. Predicted run times are means.

    A job that not even the empty cluster holds is no head of the queue: it would block all others
    for good.
    """
    order_reason = reason("order", policy=order.name)

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        forecasts, ledger = Forecasts(state, predictor), Ledger.of(state)
        decisions: list[Decision] = []
        wake_at, blocked = FOREVER, False
        for job in sorted(state.queued, key=lambda job: _queue_key(order, job, predictor)):
            if (for_good := never_starts(state, job)) is not None:
                decisions.append(Wait(job.id, for_good))
                continue
            widths, until_at = order.widths(job, forecasts)
            nodes = None if blocked else _place_widest(ledger, job, widths, state)
            if nodes is not None:
                decisions.append(Admit(job.id, len(nodes), nodes, order_reason))
                continue
            decisions.append(Wait(job.id, _no_room(job, widths[-1], ledger, state)))
            wake_at = min(wake_at, until_at)
            blocked = order.packing == "strict"
        return Plan(tuple(decisions), wake_at)

    return decide


def _queue_key(order: Order, job: Job, predictor: Predictor) -> tuple[float, float]:
    """Jobs of one turn start in the order in which the snapshot has them."""
    workers = job.widths[0]

    def mean_run_s() -> float:
        return predictor.remaining(job.workload, job.progress, workers).mean_s

    gpus = workers * job.gpus_per_worker
    key = order.key(job.submitted_at, job.deadline_at, mean_run_s, gpus)
    return order.sort_key(job.service_class, key), job.submitted_at


def _place_widest(
    ledger: Ledger, job: Job, widths: Sequence[int], state: ClusterState
) -> tuple[str, ...] | None:
    """Nodes for the first of these widths that fits, taken."""
    ledger.open_holds(job.id)
    may = state.eligible_nodes(job)
    for workers in widths:
        nodes = ledger.place(workers, job.gpus_per_worker, may, needs=job.needs)
        if nodes is not None:
            return nodes
    ledger.close_holds(job.id)
    return None


def _no_room(job: Job, workers: int, ledger: Ledger, state: ClusterState) -> Reason:
    if why := requests_full(ledger, job, workers, state):
        return why
    return no_free_gpus(
        state,
        job.eligible,
        needed_gpus=workers * job.gpus_per_worker,
        gpus_per_worker=job.gpus_per_worker,
        free_gpus=ledger.free_among(state.eligible_nodes(job)),
    )
