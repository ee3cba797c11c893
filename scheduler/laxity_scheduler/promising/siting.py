"""Where a job's workers may go when other jobs can use some nodes only.

A promise that rests on few nodes is kept only if nobody else sits on them for too long. So a job
that could go elsewhere takes GPUs of a region only if no claim there will need them while it holds
them, and even then after all others, the region of fewest nodes last. Who can be stopped in time
may sit anywhere. Without regions (`regions`) there is nothing to think about: any eligible node.
"""

from collections.abc import Iterable
from functools import cached_property

from laxity_scheduler.ledger import Ledger
from laxity_scheduler.promising.regions import Region, SplitProfile
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.state import FOREVER, NOWHERE, ClusterState, Job

Nodes = frozenset[str] | None  # None: all


class Sites:
    """The nodes that jobs may start or grow on, as one after the other takes its own."""

    def __init__(self, state: ClusterState, reservations: Reservations) -> None:
        self._state, self._reservations = state, reservations
        self.regions = reservations.room.regions
        self._taken: dict[Region, int] = dict.fromkeys(self.regions, 0)
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
