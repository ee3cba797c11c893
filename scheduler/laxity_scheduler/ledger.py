"""Free GPUs per node: the only place where capacity is counted.

A worker's GPUs sit on one node, so free GPUs are not one number. Policies, `Plan.check` and the
simulated World all spend from a Ledger. It answers by the state it is in, never by its history:
`place` gives best fit, the lowest node number first among equals.

GPUs that a preempted job freed may be held for the job they were freed for (`ClusterState.holds`).
They count as taken until that job's holds are opened. Where a node has fewer free GPUs than are
held on it, earlier holds of the snapshot come first.

A job that may use some nodes only is placed `among` these: a ledger of them alone (`part`), that
follows every change, finds the place. None stands for all nodes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from laxity_scheduler.columns.tying import Tied, tied
from laxity_scheduler.frame.compiled import COMPILES
from laxity_scheduler.model.cluster import NOTHING, ClusterState, Pool
from laxity_scheduler.model.job import Job

if TYPE_CHECKING:
    from laxity_scheduler.frame.arrays import Ints

MANY: Final = 500  # so many placements are worth compiled loops
USABLE: tuple[Pool, ...] = ("training", "loaned")  # pools that training may use


class LedgerError(ValueError):
    """More was taken than was free, or a node is not in the cluster."""


class Ledger:
    """Counts free GPUs of n nodes: one heap of node numbers per free count, checked when popped."""

    def __init__(self, names: Sequence[str], free: Sequence[int]) -> None:
        """`free[i]` GPUs are free on the node named `names[i]`; numbers order the choice."""
        self.names = tuple(names)
        self._number = dict(zip(self.names, range(len(self.names)), strict=True))
        self._held: dict[str, list[tuple[int, int]]] = {}
        self._parts: dict[frozenset[str], Ledger] = {}
        self.count(list(free))

    def count(self, free: list[int]) -> None:
        """So many GPUs are free on each node now."""
        self.free = free
        self.total_free = sum(free)
        self._heaps: list[list[int]] = [[] for _ in range(max(free, default=0) + 1)]
        for number, gpus in enumerate(free):  # in ascending order: each list is a heap
            self._heaps[gpus].append(number)
        self._nodes_with = [len(heap) for heap in self._heaps]
        self._parts.clear()

    @classmethod
    def of(cls, state: ClusterState, *, job: str = "", pools: Collection[Pool] = USABLE) -> Self:
        """The snapshot's free GPUs; GPUs held for a job count as free for that `job` alone."""
        nodes = [node for node in state.nodes if node.pool in pools]
        ledger = cls([node.id for node in nodes], [max(0, node.free_gpus) for node in nodes])
        for hold in state.holds:
            number = ledger._number.get(hold.node)
            if number is not None and hold.until_at > state.now:
                gpus = min(hold.gpus, ledger.free[number])
                ledger._change(number, -gpus)
                ledger._held.setdefault(hold.job, []).append((number, gpus))
        if job:
            ledger.open_holds(job)
        return ledger

    def copy(self) -> Self:
        """A ledger in the same state, to try things on."""
        other = type(self)(self.names, self.free)
        other._held.update((job, list(held)) for job, held in self._held.items())  # noqa: SLF001
        return other

    def open_holds(self, job: str) -> None:
        """Make the GPUs held for this job free."""
        for number, gpus in self._held.get(job, ()):
            self._change(number, gpus)

    def close_holds(self, job: str) -> None:
        """Undo `open_holds`, as long as nothing was taken meanwhile."""
        for number, gpus in self._held.get(job, ()):
            self._change(number, -gpus)

    def part(self, among: frozenset[str] | None) -> "Ledger":
        """These nodes alone, to be asked and not to be changed; itself if they are all."""
        if among is None:
            return self
        found = self._parts.get(among)
        if found is None:
            rows = [(name, free) for name, free in zip(self.names, self.free, strict=True)]
            mine = [row for row in rows if row[0] in among]
            found = Ledger([name for name, _ in mine], [free for _, free in mine])
            self._parts[among] = found
        return found

    def knows(self, node: str) -> bool:
        """Whether the node is in the cluster, and for training."""
        return node in self._number

    def free_on(self, node: str) -> int:
        """Free GPUs of one node; 0 if it is not in the cluster."""
        number = self._number.get(node)
        return 0 if number is None else self.free[number]

    def slots(self, gpus_per_worker: int) -> int:
        """How many workers of that size fit, each on one node."""
        return sum(
            nodes * (free // gpus_per_worker)
            for free, nodes in enumerate(self._nodes_with)
            if free >= gpus_per_worker
        )

    def place(
        self, workers: int, gpus_per_worker: int, among: frozenset[str] | None = None
    ) -> tuple[str, ...] | None:
        """Nodes for so many workers, one name per worker, taken; None (nothing taken) if no fit.

        Best fit: each worker goes to the fullest node that still holds it; of equals, the lowest.
        """
        if among is not None:
            return self._place_among(workers, gpus_per_worker, self.part(among))
        if workers * gpus_per_worker > self.total_free:
            return None
        taken: list[int] = []
        while len(taken) < workers:
            number = self._best_fit(gpus_per_worker)
            if number is None:
                self._undo(taken, gpus_per_worker)
                return None
            # with one worker more it is fuller still: the best fit stays there while one fits
            many = min(workers - len(taken), self.free[number] // gpus_per_worker)
            self._change(number, -many * gpus_per_worker)
            taken += [number] * many
        return tuple([self.names[number] for number in taken])

    def _place_among(
        self, workers: int, gpus_per_worker: int, part: "Ledger"
    ) -> tuple[str, ...] | None:
        nodes = part.place(workers, gpus_per_worker)
        if nodes:
            part.give(nodes, gpus_per_worker)  # taken as all parts see it, this one among them
            self.take(nodes, gpus_per_worker)
        return nodes

    def place_all(
        self,
        tries: "Ints",
        gpus: "Ints",
        *,
        stops: bool = False,
        among: Sequence[frozenset[str] | None] = (),
    ) -> list[tuple[str, ...]]:
        """`place` for one after the other, each on the first of its `tries` that fits; () if none.

        Shapes (n, K) and (n,). A try of 0 workers is none. `stops` at the first that has no place: the list ends there.
        """
        if len(gpus) < MANY or not COMPILES:
            return self._place_each(tries, gpus, among or [None] * len(gpus), stops=stops)
        if among:
            known = tied(self.names, among)
            if known is None:
                return self._place_each(tries, gpus, among, stops=stops)
            return self.place_tied(tries, gpus, known, stops=stops)
        from laxity_scheduler.columns import placing

        nodes = placing.nodes_of(np.array(self.free, dtype=np.int64))
        taken = np.empty(int(tries.max(axis=1).sum()), dtype=np.int64)
        ends = np.empty(len(tries), dtype=np.int64)
        many = placing.place_all(nodes, tries, gpus, stops, taken, ends)
        self.count(nodes.free.tolist())
        return self.named(taken, ends[:many])

    def place_tied(
        self, tries: "Ints", gpus: "Ints", known: Tied, *, stops: bool
    ) -> list[tuple[str, ...]]:
        """The same where jobs may use some nodes only; what of `known` changes is changed there."""
        from laxity_scheduler.columns import tied_placing

        nodes = tied_placing.spots_of(np.array(self.free, dtype=np.int64), known.cell)
        taken = np.empty(int(tries.max(axis=1).sum()), dtype=np.int64)
        ends = np.empty(len(tries), dtype=np.int64)
        many = tied_placing.place_all(nodes, known.ties, tries, gpus, stops, taken, ends)
        self.count(nodes.spot[nodes.where[:, 0], 0].tolist())
        return self.named(taken, ends[:many])

    def named(self, taken: "Ints", ends: "Ints") -> list[tuple[str, ...]]:
        """Names of nodes, cut at these ends."""
        cuts = ends.tolist()
        names = list(map(self.names.__getitem__, taken[: cuts[-1] if cuts else 0].tolist()))
        return [tuple(names[begin:end]) for begin, end in zip([0, *cuts], cuts, strict=False)]

    def _place_each(
        self,
        tries: "Ints",
        gpus: "Ints",
        among: Sequence[frozenset[str] | None],
        *,
        stops: bool,
    ) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for wanted, size, may in zip(tries.tolist(), gpus.tolist(), among, strict=True):
            places = (self.place(workers, size, may) for workers in wanted if workers > 0)
            nodes = next((names for names in places if names is not None), ())
            if stops and not nodes:
                break
            found.append(nodes)
        return found

    def place_on(
        self, nodes: Iterable[str], workers: int, gpus_per_worker: int
    ) -> tuple[str, ...] | None:
        """The same on these nodes only: where a running job may grow."""
        numbers = sorted({self._number[name] for name in nodes if name in self._number})
        taken: list[int] = []
        for _ in range(workers):
            fits = [number for number in numbers if self.free[number] >= gpus_per_worker]
            if not fits:
                self._undo(taken, gpus_per_worker)
                return None
            number = min(fits, key=lambda number: (self.free[number], number))
            self._change(number, -gpus_per_worker)
            taken.append(number)
        return tuple([self.names[number] for number in taken])

    def take(self, nodes: Iterable[str], gpus_per_worker: int) -> None:
        """Take one worker's GPUs on each named node (a name may recur). LedgerError if not free."""
        for name, workers in _by_node(nodes):
            number = self._number.get(name)
            if number is None:
                raise LedgerError(f"node {name!r} is not in the cluster")
            if self.free[number] < workers * gpus_per_worker:
                left = self.free[number] % gpus_per_worker
                raise LedgerError(f"node {name} has {left} free GPU(s), {gpus_per_worker} asked")
            self._change(number, -workers * gpus_per_worker)

    def give(self, nodes: Iterable[str], gpus_per_worker: int) -> None:
        """Give one worker's GPUs back on each named node; a node that is gone is passed over."""
        for name, workers in _by_node(nodes):
            number = self._number.get(name)
            if number is not None:
                self._change(number, workers * gpus_per_worker)

    def set_aside(self, node: str, gpus: int) -> None:
        """Make up to `gpus` free GPUs of a node unavailable (somebody else will need them)."""
        number = self._number[node]
        self._change(number, -min(gpus, self.free[number]))

    def _undo(self, taken: list[int], gpus: int) -> None:
        for number in taken:
            self._change(number, gpus)

    def _best_fit(self, gpus: int) -> int | None:
        for count in range(gpus, len(self._heaps)):
            if not self._nodes_with[count]:
                continue
            heap = self._heaps[count]
            while self.free[heap[0]] != count:
                heappop(heap)
            return heap[0]
        return None

    def _change(self, number: int, gpus: int) -> None:
        if not gpus:
            return
        before = self.free[number]
        free = before + gpus
        while free >= len(self._heaps):
            self._heaps.append([])
            self._nodes_with.append(0)
        self.free[number] = free
        self.total_free += gpus
        self._nodes_with[before] -= 1
        self._nodes_with[free] += 1
        heappush(self._heaps[free], number)
        for part in self._parts.values():
            mine = part._number.get(self.names[number])  # noqa: SLF001 - a ledger as well
            if mine is not None:
                part._change(mine, gpus)  # noqa: SLF001


def may_ever_start(state: ClusterState, job: Job) -> bool:
    """Whether the nodes that it may use would hold its least width if they were empty."""
    if not job.eligible:
        gpus = [node.gpus for node in state.nodes if node.pool in USABLE]
        return sum(one // job.gpus_per_worker for one in gpus) >= job.widths[0]
    return slots_in(state.on_sets.get(job.eligible, NOTHING).usable, job) >= job.widths[0]


def slots_in(sizes: Mapping[int, int], job: Job) -> int:
    """How many of its workers empty nodes of these sizes hold."""
    return sum(many * (gpus // job.gpus_per_worker) for gpus, many in sizes.items())


def _by_node(nodes: Iterable[str]) -> Iterable[tuple[str, int]]:
    """(name, how often it recurs), in order of first mention."""
    names = tuple(nodes)
    return ((names[0], 1),) if len(names) == 1 else Counter(names).items()
