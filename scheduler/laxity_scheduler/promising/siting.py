"""Where a job's workers may go when other jobs can use some nodes only.

A promise that rests on few nodes is kept only if nobody else sits on them for too long. So a job
that could go elsewhere takes GPUs of a region only if no claim there will need them while it holds
them, and even then after all others, the region of fewest nodes last. Who can be stopped in time
may sit anywhere. Without regions (`regions`) there is nothing to think about: any eligible node.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from laxity_scheduler.columns.tying import ALL_CELLS, Tied, cells_of
from laxity_scheduler.frame.compiled import COMPILES
from laxity_scheduler.ledger import MANY, Ledger
from laxity_scheduler.model.cluster import NOWHERE, ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.regions import Region, SplitProfile
from laxity_scheduler.promising.reservations import Reservations

if TYPE_CHECKING:
    from laxity_scheduler.frame.arrays import Ints

Nodes = frozenset[str] | None  # None: all


class Sites:
    """The nodes that jobs may start or grow on, as one after the other takes its own."""

    def __init__(self, state: ClusterState, reservations: Reservations) -> None:
        self._state, self._reservations = state, reservations
        self.regions = reservations.room.regions
        self._taken: dict[Region, int] = dict.fromkeys(self.regions, 0)
        self._known_cells: tuple[Ints, dict[Nodes, int]] | None = None
        self._known: dict[tuple[str, frozenset[str], frozenset[Region]], frozenset[str]] = {}

    @cached_property
    def _rest(self) -> SplitProfile | None:
        """What claims leave over time; None where all of them run at once."""
        if self._reservations.roomy:
            return None
        profile = self._reservations.profile()
        return profile.copy() if isinstance(profile, SplitProfile) else None

    @cached_property
    def _all(self) -> frozenset[str]:
        return frozenset(node.id for node in self._state.nodes)

    def open_to(self, job: Job, hold_s: float, *, claimed: bool, from_s: float = 0.0) -> Nodes:
        """The nodes that a worker of it may take for so long from then, without harm to any claim."""
        if not self.regions:
            return self._state.eligible(job)
        spare = self._spare(job, hold_s, claimed=claimed, from_s=from_s)
        size = job.gpus_per_worker
        if any(gpus < size for region, gpus in spare.items() if job.eligible in region.inside):
            return NOWHERE
        return self._nodes(job, NOWHERE, (region for region in spare if spare[region] < size))

    def place(
        self,
        ledger: Ledger,
        job: Job,
        workers: int,
        hold_s: float,
        *,
        claimed: bool,
        without: frozenset[str] = NOWHERE,
    ) -> tuple[str, ...] | None:
        """`Ledger.place` where it may go; on nodes that others need more only if it must be."""
        size = job.gpus_per_worker
        if not self.regions and not without:
            nodes = ledger.place(workers, size, self._state.eligible(job))
        else:
            spare = self._spare(job, hold_s, claimed=claimed)
            nodes = self._placed(ledger, job, workers, spare, without)
        if nodes is not None:
            self._take(job, nodes, hold_s, claimed=claimed)
        return nodes

    def place_all(
        self, ledger: Ledger, jobs: Sequence[Job], tries: "Ints", gpus: "Ints", *, claimed: bool
    ) -> list[tuple[str, ...]]:
        """`place` for one after the other, where all claims run at once, up to the first without."""
        if not self._state.sets:
            return ledger.place_all(tries, gpus, stops=True)
        known = self.tied(ledger, jobs, claimed=claimed) if len(jobs) >= MANY else None
        if known is not None:
            placed = ledger.place_tied(tries, gpus, known, stops=True)
            self.took(known)
            return placed
        placed = []
        for job, wanted in zip(jobs, tries.tolist(), strict=True):
            places = (
                self.place(ledger, job, workers, 0.0, claimed=claimed)
                for workers in wanted
                if workers > 0
            )
            nodes = next((names for names in places if names is not None), ())
            if not nodes:
                break
            placed.append(nodes)
        return placed

    def tied(
        self,
        ledger: Ledger,
        jobs: Sequence[Job],
        *,
        claimed: bool,
        without: frozenset[str] = NOWHERE,
    ) -> Tied | None:
        """Who may go where, for compiled loops; None where these cannot tell.

        They know no GPUs that are freed for somebody, and only so many sets of nodes.
        """
        known = self._cells(ledger) if COMPILES else None
        if known is None or any(region.awaited for region in self.regions):
            return None
        from laxity_scheduler.columns.tied_placing import Ties

        cell, masks = known
        kinds = {
            name: kind for kind, name in enumerate(dict.fromkeys(job.eligible for job in jobs))
        }
        inside = [[name in region.inside for region in self.regions] for name in kinds]
        shut = 0
        if without:
            hit = np.array([name in without for name in ledger.names], dtype=np.bool_)
            shut = sum(1 << int(one) for one in np.unique(cell[hit]))
        left = [self._reservations.spare_on(one) - self._taken[one] for one in self.regions]
        ties = Ties(
            np.array([kinds[job.eligible] for job in jobs], dtype=np.int64),
            np.full(len(jobs), claimed),
            np.array([job.preemptible for job in jobs], dtype=np.bool_),
            np.array([masks[self._state.nodes_of(name)] for name in kinds], dtype=np.int64),
            np.array(inside, dtype=np.bool_).reshape(len(kinds), len(self.regions)),
            np.array([masks[region.nodes] for region in self.regions], dtype=np.int64),
            np.array(left, dtype=np.int64),
            np.array(left, dtype=np.int64),
            np.full(1, shut),
        )
        return Tied(cell, ties)

    def took(self, known: Tied) -> None:
        """What compiled loops have taken of the regions."""
        for region, left in zip(self.regions, known.ties.left.tolist(), strict=True):
            self._taken[region] = self._reservations.spare_on(region) - left

    def _cells(self, ledger: Ledger) -> tuple["Ints", dict[Nodes, int]] | None:
        """The cell of each node, and sets and regions as masks of cells."""
        if self._known_cells is None:
            sets = [one.nodes for one in self.regions]
            sets += [one.nodes for one in (self._state.sets or {}).values()]
            sets = list(dict.fromkeys([*sets, NOWHERE]))
            found = cells_of(ledger.names, sets)
            if found is None:
                return None
            masks: dict[Nodes, int] = {None: ALL_CELLS, **dict(zip(sets, found[1], strict=True))}
            self._known_cells = found[0], masks
        return self._known_cells

    def place_on(
        self, ledger: Ledger, job: Job, workers: int, hold_s: float, *, claimed: bool
    ) -> tuple[str, ...] | None:
        """`Ledger.place_on` its own nodes: where a running job may grow."""
        size = job.gpus_per_worker
        may = self.open_to(job, hold_s, claimed=claimed)
        own = job.nodes if may is None else tuple(node for node in job.nodes if node in may)
        nodes = ledger.place_on(own, workers, size)
        if nodes is None:
            return None
        spare = self._spare(job, hold_s, claimed=claimed)
        if any(_felt(region, job, nodes) * size > spare[region] for region in spare):
            ledger.give(nodes, size)
            return None
        self._take(job, nodes, hold_s, claimed=claimed)
        return nodes

    def _placed(
        self,
        ledger: Ledger,
        job: Job,
        workers: int,
        spare: dict[Region, float],
        without: frozenset[str],
    ) -> tuple[str, ...] | None:
        """First on nodes of no other region, then with the largest of them, and so on."""
        size = job.gpus_per_worker
        others = [region for region in self.regions if job.eligible not in region.inside]
        whole = [spare[region] for region in spare if job.eligible in region.inside]
        if workers * size > min(whole, default=FOREVER):
            return None
        nodes: tuple[str, ...] = ()
        for last in range(len(others), -1, -1):
            while len(nodes) < workers:
                closed = {*others[:last], *(one for one in others if spare[one] < size)}
                stage = self._nodes(job, without, closed)
                room = [spare[one] / size for one in others if one not in closed]
                slots = ledger.part(stage).slots(size)
                more = ledger.place(int(min([workers - len(nodes), slots, *room])), size, stage)
                if not more:
                    break
                nodes += more
                for region in others:
                    spare[region] -= region.holds(more) * size
        if len(nodes) == workers:
            return nodes
        ledger.give(nodes, size)
        return None

    def _take(self, job: Job, nodes: tuple[str, ...], hold_s: float, *, claimed: bool) -> None:
        """It has started on these nodes, or grown onto them."""
        size = job.gpus_per_worker
        for region in self.regions:
            counted = self._counted(region, job, len(nodes)) if claimed else 0
            gpus = max(0, region.holds(nodes) - counted) * size
            if self._rest is not None:
                self._rest.take_on(region, gpus, hold_s)
            elif claimed or not job.preemptible:
                self._taken[region] += gpus

    def _counted(self, region: Region, job: Job, workers: int) -> int:
        """How many of its new workers a claim was counted with on a region."""
        whole = job.eligible in region.inside
        return workers if whole else 0 if job.workers else region.workers(job, workers)

    def _spare(
        self, job: Job, hold_s: float, *, claimed: bool, from_s: float = 0.0
    ) -> dict[Region, float]:
        """GPUs of each region that no claim needs meanwhile.

        A claim was counted on the regions that it cannot leave, or where others are stopped for it;
        whoever has none must find spare GPUs there as well.
        """
        found: dict[Region, float] = {}
        for region in self.regions:
            if not (claimed and job.eligible in region.inside):
                mine = self._counted(region, job, max(job.widths)) if claimed else 0
                spare = self._spare_on(region, job, from_s, from_s + hold_s, claimed=claimed)
                found[region] = spare + mine * job.gpus_per_worker
        return found

    def _spare_on(
        self, region: Region, job: Job, from_s: float, until_s: float, *, claimed: bool
    ) -> float:
        if self._rest is not None:
            return self._rest.least_free(region, from_s, until_s)
        if job.preemptible and not claimed:
            return FOREVER
        return self._reservations.spare_on(region) - self._taken[region]

    def _nodes(self, job: Job, without: frozenset[str], closed: Iterable[Region]) -> Nodes:
        """The nodes that it may use but those; the same object for the same nodes."""
        key = (job.eligible, without, frozenset(closed))
        if not without and not key[2]:
            return self._state.eligible(job)
        found = self._known.get(key)
        if found is None:
            may = self._state.eligible(job)
            found = (self._all if may is None else may).difference(
                without, *(region.nodes for region in key[2])
            )
            self._known[key] = found
        return found


def _felt(region: Region, job: Job, nodes: tuple[str, ...]) -> int:
    return len(nodes) if job.eligible in region.inside else region.holds(nodes)
