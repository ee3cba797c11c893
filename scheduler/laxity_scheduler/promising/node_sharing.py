"""GPUs beside workers that fill a node by CPU or memory: who may use them, though such workers come again.

A worker with 1 GPU and 60 of 64 CPUs leaves 7 of 8 GPUs that no other of its kind can use. Where jobs take
turns it is counted with all 8 (`claimed_gpus`), so that it finds its CPUs. Small jobs without a promise may
still sit beside it: on nodes that, with them, hold as many workers of each filling kind as when empty.
So they are in no filling worker's way, whoever comes when, and weigh on a part of its own: GPUs as they
are. On that part all others weigh, too. The rule is our own.
"""

from collections.abc import Collection, Iterable
from functools import cached_property

from laxity_scheduler.capacity.eligibility import count_slots
from laxity_scheduler.model.cluster import PROMISABLE_POOLS, ClusterState
from laxity_scheduler.model.job import Job, NodeRoom, WorkerShape, spend, workers_that_fit


class NodeSharing:
    """Of one snapshot, and of what starts on it."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._claimed: dict[tuple[WorkerShape, str], float] = {}  # those that were asked for
        self._beside: dict[tuple[WorkerShape, int], dict[str, None]] = {}  # of those, in order

    @cached_property
    def counts(self) -> bool:
        """Whether what else workers request may be scarcer on nodes than GPUs."""
        return any(job.needs for job in self._state.jobs)

    def claimed_gpus(self, job: Job) -> float:
        """GPUs that a worker keeps from others where they take turns: it may fill a node with fewer.

        More than it needs, so that whatever else they request is there for all who are planned at once.
        """
        kind = job.shape, job.eligible
        if not job.needs or kind in self._claimed:
            return self._claimed.get(kind, float(job.gpus_per_worker))
        slots, usable = (
            count_slots(self._state, job, PROMISABLE_POOLS),
            self._state.capacity(job.eligible),
        )
        gpus = sum(size * count for size, count in usable.training.items())
        claimed = max(float(job.gpus_per_worker), gpus / max(1, slots))
        return self._claimed.setdefault(kind, claimed)

    def fills(self, job: Job) -> bool:
        """Whether its workers leave GPUs of a node that no more of them can use."""
        return self.claimed_gpus(job) > job.gpus_per_worker

    @cached_property
    def _needed(self) -> dict[str, tuple[tuple[WorkerShape, int], ...]]:
        """How many workers of each filling kind a node must hold, by node."""
        shapes = {job.shape for job in self._state.jobs if job.needs and self.fills(job)}
        nodes = [node for node in self._state.nodes if node.pool in PROMISABLE_POOLS]
        return {
            node.id: tuple(
                [
                    (shape, workers_that_fit(NodeRoom(node.gpus, node.room), shape))
                    for shape in shapes
                ]
            )
            for node in nodes
            if node.coming is None
        }

    @cached_property
    def _left(self) -> dict[str, NodeRoom]:
        """What filling workers have of each node: all that nobody else uses."""
        nodes = (node for node in self._state.nodes if node.id in self._needed)
        left = {node.id: NodeRoom(node.free_gpus, node.free_room) for node in nodes}
        for job in self._state.running:
            if self.fills(job):
                self._spend(left, job, job.nodes, -1)
        return left

    def note_start(self, job: Job, nodes: Iterable[str]) -> None:
        """Its workers are on these nodes from now on."""
        if self.fills(job):
            return
        self._spend(self._left, job, nodes, 1)
        for (shape, workers), beside in self._beside.items():
            for name in beside.keys() & set(nodes):
                if not self._holds(name, _without(self._left[name], shape, workers)):
                    del beside[name]

    @staticmethod
    def _spend(left: dict[str, NodeRoom], job: Job, nodes: Iterable[str], workers: int) -> None:
        for name in nodes:
            if name in left:
                left[name] = _without(left[name], job.shape, workers)

    def beside(self, job: Job, workers: int) -> Collection[str]:
        """Nodes that so many more workers of it would leave to filling ones, all on one of them or not."""
        if self.fills(job):
            return ()
        key = job.shape, workers
        if key not in self._beside:
            rooms = self._left.items()
            names = [name for name, room in rooms if self._holds(name, _without(room, *key))]
            self._beside[key] = dict.fromkeys(names)
        return self._beside[key].keys()

    def workers_beside(self, job: Job) -> int:
        """How many of its running workers are in no filling one's way."""
        if self.fills(job):
            return 0
        return sum(name in self._left and self._holds(name, self._left[name]) for name in job.nodes)

    def _holds(self, name: str, room: NodeRoom) -> bool:
        needed = self._needed[name]
        return all(workers_that_fit(room, shape) >= workers for shape, workers in needed)


def _without(room: NodeRoom, shape: WorkerShape, workers: int) -> NodeRoom:
    """What is left beside so many more workers; fewer than 0 give back."""
    amounts = None if room.amounts is None else spend(room.amounts, shape.needs, workers)
    return NodeRoom(room.gpus - workers * shape.gpus, amounts)
