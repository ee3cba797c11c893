"""Free GPUs per node: the only place where capacity is counted.

A worker's GPUs sit on one node, so free GPUs are not one number. Policies, `check_plan` and the
simulated World all spend from a Ledger. It answers by the state it is in, never by its history:
`place` gives best fit, the lowest node number first among equals.

GPUs that a preempted job freed may be held for the job they were freed for (`ClusterState.holds`).
They count as taken until that job's holds are opened. Where a node has fewer free GPUs than are
held on it, earlier holds of the snapshot come first.

A job that may use some nodes only is placed `among` these. None stands for all nodes.

Where workers need more of a node than GPUs, free GPUs count only as far as workers of a shape fit there
(`workers_that_fit`). For each such shape a `view` of the nodes says so, and follows what is taken.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from typing import Self

import numpy as np

from laxity.human_time import count_noun
from laxity_scheduler.capacity import growing, placement
from laxity_scheduler.capacity.growing import Growers, Grown
from laxity_scheduler.capacity.placement import ALL_CELLS, Nodes, Rules
from laxity_scheduler.capacity.shape_views import ShapeViews
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import run
from laxity_scheduler.model.cluster import ClusterState, Pool
from laxity_scheduler.model.job import (
    Amounts,
    Job,
    Needs,
    WorkerShape,
)

USABLE: tuple[Pool, ...] = ("training", "loaned")  # pools that training may use
OWN: tuple[Pool, ...] = ("training",)
STARTABLE: tuple[Pool, ...] = (*USABLE, "coming")  # pools that a start may name
Among = frozenset[str] | None  # nodes; None: all


class LedgerError(ValueError):
    """More was taken than was free, or a node is not in the cluster."""


class Ledger:
    """Counts free GPUs of n nodes, which `placement` chooses from."""

    def __init__(
        self,
        names: Sequence[str],
        free: Sequence[int],
        sets: Iterable[frozenset[str]] = (),
        rooms: Sequence[Amounts | None] = (),
    ) -> None:
        """`free[i]` GPUs are free on the node named `names[i]`; numbers order the choice.

        Less than 0: workers hold more than the node has, and give these back to nobody.
        `sets` of nodes are those that jobs name which may not use all of them. `rooms` is what the nodes
        have free beside GPUs; (): plenty.
        """
        self.names = tuple(names)
        self._number = dict(zip(self.names, range(len(self.names)), strict=True))
        self._held: dict[str, list[tuple[int, int]]] = {}
        self._owed = {number: -gpus for number, gpus in enumerate(free) if gpus < 0}
        self._masks: dict[Among, int | None] = {}
        cell = placement.cells_of(self.names, dict.fromkeys(sets))
        self._sizes = Counter(cell)
        self.nodes = placement.count_nodes([max(0, gpus) for gpus in free], cell)
        self._views = ShapeViews(rooms)

    @property
    def free(self) -> list[int]:
        return self.nodes.free

    @property
    def total_free(self) -> int:
        return self.nodes.total[0]

    @classmethod
    def of(cls, state: ClusterState, *, job: str = "", pools: Collection[Pool] = USABLE) -> Self:
        """The snapshot's free GPUs; GPUs held for a job count as free for that `job` alone."""
        nodes = [node for node in state.nodes if node.pool in pools]
        sets = [node_set.nodes for node_set in (state.sets or {}).values()]
        rooms = [node.free_room for node in nodes] if any(job.needs for job in state.jobs) else ()
        ledger = cls([node.id for node in nodes], [node.free_gpus for node in nodes], sets, rooms)
        for hold in state.holds:
            number = ledger._number.get(hold.node)
            if number is not None and hold.until_at > state.now:
                gpus = min(hold.gpus, ledger.free[number])
                ledger._change_free(number, -gpus)
                ledger._held.setdefault(hold.job, []).append((number, gpus))
        if job:
            ledger.open_holds(job)
        return ledger

    def copy(self) -> Self:
        """A ledger in the same state, to try things on."""
        other = copy(self)
        other.nodes = placement.count_nodes(list(self.free), self.nodes.cell)
        other._held = {job: list(held) for job, held in self._held.items()}  # noqa: SLF001
        other._owed = dict(self._owed)  # noqa: SLF001
        other._views = self._views.copy()  # noqa: SLF001
        return other

    def open_holds(self, job: str) -> None:
        """Make the GPUs held for this job free."""
        for number, gpus in self._held.get(job, ()):
            self._change_free(number, gpus)

    def close_holds(self, job: str) -> None:
        """Undo `open_holds`, as long as nothing was taken meanwhile."""
        for number, gpus in self._held.get(job, ()):
            self._change_free(number, -gpus)

    @contextmanager
    def closed(self, nodes: Iterable[str]) -> Iterator[None]:
        """Nothing is free on these nodes meanwhile."""
        numbers = [self._number[name] for name in nodes if name in self._number]
        taken = [(number, self.free[number]) for number in numbers]
        for number, gpus in taken:
            self._change_free(number, -gpus)
        try:
            yield
        finally:
            for number, gpus in taken:
                self._change_free(number, gpus)

    def knows(self, node: str) -> bool:
        """Whether the node is in the cluster, and for training."""
        return node in self._number

    def free_on(self, node: str) -> int:
        """Free GPUs of one node; 0 if it is not in the cluster."""
        number = self._number.get(node)
        return 0 if number is None else self.free[number]

    def balance_on(self, node: str) -> int:
        """Free GPUs of one node, negative by what has to be given back before any is free."""
        return self.free_on(node) - self._owed.get(self._number.get(node, -1), 0)

    def cells(self, among: Among) -> int:
        """These nodes as a mask of cells. LedgerError if they cut one."""
        cells = self._cell_mask(among)
        if cells is None:
            raise LedgerError(
                f"{len(among or ())} nodes are asked for that no set of nodes tells apart"
            )
        return cells

    def _cell_mask(self, among: Among) -> int | None:
        if among is None:
            return ALL_CELLS
        if among not in self._masks:
            mine = [self._number[name] for name in among if name in self._number]
            sizes = Counter(map(self.nodes.cell.__getitem__, mine))
            whole = all(self._sizes[cell] == size for cell, size in sizes.items())
            self._masks[among] = sum(1 << cell for cell in sizes) if whole else None
        return self._masks[among]

    def slots(self, gpus_per_worker: int, among: Among = None, *, needs: Needs = ()) -> int:
        """How many workers of that size fit, each on one node of these."""
        view = self._views.of(self.nodes, WorkerShape(gpus_per_worker, needs))
        return sum(
            nodes * (free // gpus_per_worker)
            for free, nodes in self._nodes_with(among, view)
            if free >= gpus_per_worker
        )

    def free_among(self, among: Among) -> int:
        """Free GPUs of these nodes."""
        return sum(free * nodes for free, nodes in self._nodes_with(among, self.nodes))

    def _nodes_with(self, among: Among, view: Nodes) -> Iterable[tuple[int, int]]:
        """(free GPUs, how many of these nodes have so many)."""
        cells, (_, _, counts, _, _, _, levels, _) = self._cell_mask(among), view
        if cells is None:
            return Counter([view.free[number] for number in self.numbers(among or ())]).items()
        mine = [first for first in range(0, len(counts), levels) if cells >> first // levels & 1]
        return ((free, counts[first + free]) for first in mine for free in range(1, levels))

    def place(
        self, workers: int, gpus_per_worker: int, among: Among = None, *, needs: Needs = ()
    ) -> tuple[str, ...] | None:
        """Nodes for so many workers, one name per worker, taken; None (nothing taken) if no fit.

        Best fit: each worker goes to the fullest node that still holds it; of equals, the lowest.
        """
        cells = self._cell_mask(among)
        if cells is None:
            return self.place_on(among or (), workers, gpus_per_worker, needs=needs)
        shape, taken = WorkerShape(gpus_per_worker, needs), [0] * workers
        if not placement.place(
            self._views.of(self.nodes, shape), workers, gpus_per_worker, cells, taken, 0
        ):
            return None
        return self._note_taken(taken, shape)

    def place_for(self, job: Job, workers: int, among: Among = None) -> tuple[str, ...] | None:
        """`place` for those that the job needs more to have so many workers."""
        return self.place(workers - job.workers, job.gpus_per_worker, among, needs=job.needs)

    def place_all(
        self,
        tries: Ints,
        gpus: Ints,
        *,
        stops: bool = False,
        among: Sequence[Among] = (),
        needs: Sequence[Needs] = (),
    ) -> list[tuple[str, ...]]:
        """`place` for one after the other, each on the first of its `tries` that fits; () if none.

        Shapes (n, K) and (n,). A try of 0 workers is none. `stops`: the list ends at the first that
        has no place.
        """
        among = among or [None] * len(gpus)
        kinds = {may: kind for kind, may in enumerate(dict.fromkeys(among))}
        masks = [self.cells(may) for may in kinds]
        rules = placement.without_claims([kinds[may] for may in among], masks)
        return self.site_all(tries, gpus, rules, stops=stops, needs=needs)

    def site(
        self, workers: int, shape: WorkerShape, rules: Rules, *, row: int = 0
    ) -> tuple[str, ...] | None:
        """`place` by the rules for one job, which is their row."""
        view, taken = self._views.of(self.nodes, shape), [0] * workers
        if not placement.site(view, rules, row, workers, shape.gpus, taken, 0):
            return None
        return self._note_taken(taken, shape)

    def site_on(
        self, nodes: Iterable[str], workers: int, shape: WorkerShape, rules: Rules
    ) -> tuple[str, ...] | None:
        """`place_on` by the rules for one job."""
        view, own, taken = self._views.of(self.nodes, shape), self.numbers(nodes), [0] * workers
        if not placement.site_on(view, rules, 0, own, 0, len(own), workers, shape.gpus, taken, 0):
            return None
        return self._note_taken(taken, shape)

    def numbers(self, nodes: Iterable[str]) -> list[int]:
        """Of those of these nodes that are in the cluster, each once, in order."""
        return sorted({self._number[name] for name in nodes if name in self._number})

    def site_all(
        self, tries: Ints, gpus: Ints, rules: Rules, *, stops: bool, needs: Sequence[Needs] = ()
    ) -> list[tuple[str, ...]]:
        """`place_all` by rules, of which what is left on regions is changed."""
        if self._views.matter(needs):
            shapes = list(map(WorkerShape, gpus.tolist(), needs))
            return list(self._site_each(tries.tolist(), shapes, rules, stops=stops))
        taken, ends = [0] * int(tries.max(axis=1, initial=0).sum()), [0] * len(gpus)
        args = (self.nodes, rules, tries, gpus, stops, taken, ends)
        job_count = run(placement.place_all, len(gpus), *args, most_bits=len(self._sizes))
        self._views.drop()
        return self.split_node_names(taken, ends[:job_count])

    def _site_each(
        self,
        tries: Sequence[Sequence[int]],
        shapes: Sequence[WorkerShape],
        rules: Rules,
        *,
        stops: bool,
    ) -> Iterator[tuple[str, ...]]:
        for row, (widths, shape) in enumerate(zip(tries, shapes, strict=True)):
            placed = (self.site(wide, shape, rules, row=row) for wide in widths if wide > 0)
            nodes = next(filter(None, placed), ())
            if stops and not nodes:
                return
            yield nodes

    def grow(
        self, jobs: Growers, rules: Rules, needs: Sequence[Needs] = ()
    ) -> list[tuple[int, int, tuple[str, ...]]]:
        """Widen these jobs while GPUs are free: who has grown, to which level, by which nodes.

        Who needs more than GPUs and finds too little of it where it would grow does not.
        """
        if not self._views.matter(needs):
            grown = self._grow(self.nodes, jobs, rules)
            self._views.drop()
            return grown
        shapes = list(map(WorkerShape, np.asarray(jobs.gpus).tolist(), needs))
        view = self._views.of(self.nodes, shapes[0]) if len(set(shapes)) == 1 else self.nodes
        trial = placement.count_nodes(list(view.free), view.cell)
        grown = self._grow(trial, jobs, rules)
        return [step for step in grown if self._takes(step[2], shapes[step[0]])]

    def _takes(self, nodes: Iterable[str], shape: WorkerShape) -> bool:
        """Whether they have room for these workers; it is taken then."""
        with suppress(LedgerError):
            self.take(nodes, shape.gpus, needs=shape.needs)
            return True
        return False

    def _grow(
        self, nodes: Nodes, jobs: Growers, rules: Rules
    ) -> list[tuple[int, int, tuple[str, ...]]]:
        steps = min(len(jobs.width), self.total_free) + 1  # each takes a GPU at least
        grown = Grown([0] * self.total_free, [0] * steps, [0] * steps)
        args = (nodes, rules, jobs, grown)
        step_count = run(growing.grow, len(jobs.level), *args, most_bits=len(self._sizes))
        step_jobs, step_ends = np.array([grown.job, grown.ends])[:, :step_count]
        owners = np.repeat(step_jobs, np.diff(step_ends, prepend=0))  # whose worker each is
        taken = np.array(grown.taken)[np.argsort(owners, kind="stable")].tolist()
        ends = np.cumsum(np.bincount(owners, minlength=len(jobs.level))).tolist()
        more = self.split_node_names(taken, ends)
        return [(job, jobs.level[job], more[job]) for job in dict.fromkeys(step_jobs.tolist())]

    def split_node_names(self, taken: Sequence[int], ends: Sequence[int]) -> list[tuple[str, ...]]:
        """Names of nodes, cut at these ends."""
        names = list(map(self.names.__getitem__, taken[: ends[-1] if len(ends) else 0]))
        return [tuple(names[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]

    def place_on(
        self, nodes: Iterable[str], workers: int, gpus_per_worker: int, *, needs: Needs = ()
    ) -> tuple[str, ...] | None:
        """`place` on these nodes only: where a running job may grow."""
        anybody = placement.without_claims([0], [ALL_CELLS])
        return self.site_on(nodes, workers, WorkerShape(gpus_per_worker, needs), anybody)

    def take(self, nodes: Iterable[str], gpus_per_worker: int, *, needs: Needs = ()) -> None:
        """Take one worker's GPUs on each named node (a name may recur).

        LedgerError, and nothing is taken, if one is not free.
        """
        gpus_by_number: dict[int, int] = {}
        for name, workers in _by_node(nodes):
            number = self._number.get(name)
            if number is None:
                raise LedgerError(f"node {name!r} is not in the cluster")
            if self.free[number] < workers * gpus_per_worker:
                left = self.free[number] % gpus_per_worker
                raise LedgerError(
                    f"node {name} has {count_noun(left, 'free GPU')}, {gpus_per_worker} asked"
                )
            shape = WorkerShape(gpus_per_worker, needs)
            if scarce := self._views.find_scarce(self.nodes, number, shape, workers):
                raise LedgerError(
                    f"node {name} has too little {scarce} for {workers} of its workers"
                )
            gpus_by_number[number] = workers * gpus_per_worker
        for number, gpus in gpus_by_number.items():
            self._views.spend(number, needs, gpus // gpus_per_worker)
            self._change_free(number, -gpus)

    def give(self, nodes: Iterable[str], gpus_per_worker: int, *, needs: Needs = ()) -> None:
        """Give one worker's GPUs back on each named node; a node that is gone is passed over."""
        for name, workers in _by_node(nodes):
            number = self._number.get(name)
            if number is not None:
                gpus, owed = workers * gpus_per_worker, self._owed.get(number, 0)
                self._views.spend(number, needs, -workers)
                self._change_free(number, max(0, gpus - owed))
                if owed:
                    self._owed[number] = max(0, owed - gpus)

    def set_aside(self, node: str, gpus: int) -> None:
        """Make up to `gpus` free GPUs of a node unavailable (somebody else will need them)."""
        number = self._number[node]
        self._change_free(number, -min(gpus, self.free[number]))

    def _change_free(self, number: int, gpus: int) -> None:
        if not gpus:
            return
        free = self.free[number] + gpus
        if free >= self.nodes.levels:
            self.nodes = placement.count_nodes(self.free, self.nodes.cell, levels=2 * free)
            self._views.drop()
        placement.change_free(self.nodes, number, gpus)
        self._views.note_change(self.nodes, number)

    def _note_taken(self, taken: Sequence[int], shape: WorkerShape) -> tuple[str, ...]:
        """Names of the nodes that workers have taken on the view of their shape."""
        self._views.note_taken(self.nodes, taken, shape)
        return tuple([self.names[number] for number in taken])


def count_free_gpus(state: ClusterState) -> int:
    """GPUs that a `Ledger` of the snapshot has free in all."""
    if state.holds:
        return Ledger.of(state).total_free
    gpus = [node.free_gpus for node in state.nodes if node.pool in USABLE]
    return sum([free for free in gpus if free > 0])


def _by_node(nodes: Iterable[str]) -> Iterable[tuple[str, int]]:
    """(name, how often it recurs), in order of first mention."""
    names = tuple(nodes)
    return ((names[0], 1),) if len(names) == 1 else Counter(names).items()
