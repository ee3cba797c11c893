"""Where a job's workers may go when other jobs can use some nodes only.

A promise that rests on few nodes is kept only if nobody else sits on them for too long. So a job
that could go elsewhere takes GPUs of a region only if no claim there will need them while it holds
them, and even then after all others, the region of fewest nodes last. Who can be stopped in time
may sit anywhere. Without regions (`regions`) there is nothing to think about: any eligible node.

What is left of quotas now is counted here, too: free nodes say nothing about it.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import floor

from laxity_scheduler.capacity import placement
from laxity_scheduler.capacity.ledger import Among, Ledger
from laxity_scheduler.capacity.placement import ALL_CELLS, Rules
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.cluster import NOWHERE, ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.regions import Region, SplitProfile
from laxity_scheduler.promising.reservations import Reservations


class PlacementRules:
    """The nodes that jobs may start or grow on, as one after the other takes its own."""

    def __init__(self, state: ClusterState, reservations: Reservations) -> None:
        self._state, self._reservations = state, reservations
        self.regions = reservations.room.regions
        self._known: dict[tuple[str, frozenset[Region]], frozenset[str]] = {}
        self._quota_left = dict(state.quota_left) if state.quotas else {}

    @cached_property
    def _rest(self) -> SplitProfile | None:
        """What claims leave over time; None where all of them run at once."""
        if self._reservations.roomy:
            return None
        profile = self._reservations.profile()
        return profile.copy() if isinstance(profile, SplitProfile) else None

    @cached_property
    def _left(self) -> list[int]:
        """GPUs of each region that no claim will ever need."""
        return [self._reservations.spare_on(region) for region in self.regions]

    @cached_property
    def _all(self) -> frozenset[str]:
        return frozenset(node.id for node in self._state.nodes)

    def open_to(self, job: Job, hold_s: float, *, claimed: bool, from_s: float = 0.0) -> Among:
        """The nodes that a worker of it may take for so long from then, without harm to any claim."""
        if not self.regions:
            return self._state.eligible(job)
        size, rules = job.gpus_per_worker, self._rules([job], from_s, hold_s, claimed=claimed)
        if placement.look_up_spare(rules, 0, size) < size:
            return NOWHERE
        spare = zip(self.regions, rules.spare, strict=True)
        return self._nodes(job, (region for region, gpus in spare if gpus < size))

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
        if workers * job.gpus_per_worker > self.quota_left(job):
            return None
        rules = self.rules(ledger, [job], hold_s, claimed=claimed, without=without)
        before = list(rules.left)
        nodes = ledger.site(workers, job.gpus_per_worker, rules)
        self._took(before, rules, hold_s)
        self.spend_quota(job, len(nodes or ()))
        return nodes

    def place_all(
        self, ledger: Ledger, jobs: Sequence[Job], tries: Ints, gpus: Ints, *, claimed: bool
    ) -> list[tuple[str, ...]]:
        """`place` for one after the other, where all claims run at once, up to the first without."""
        if not self._state.quotas:
            rules = self.rules(ledger, jobs, claimed=claimed)
            return ledger.site_all(tries, gpus, rules, stops=True)
        placed = []
        for job, wanted in zip(jobs, tries.tolist(), strict=True):
            widths = (workers for workers in wanted if workers > 0)
            places = (self.place(ledger, job, one, 0.0, claimed=claimed) for one in widths)
            nodes = next((names for names in places if names is not None), None)
            if nodes is None:
                break
            placed.append(nodes)
        return placed

    def place_on(
        self, ledger: Ledger, job: Job, workers: int, hold_s: float, *, claimed: bool
    ) -> tuple[str, ...] | None:
        """`Ledger.place_on` its own nodes: where a running job may grow."""
        if workers * job.gpus_per_worker > self.quota_left(job):
            return None
        size, may = job.gpus_per_worker, self.open_to(job, hold_s, claimed=claimed)
        own = job.nodes if may is None else tuple(node for node in job.nodes if node in may)
        nodes = ledger.place_on(own, workers, size)
        if nodes is None:
            return None
        rules = self.rules(ledger, [job], hold_s, claimed=claimed)
        before = list(rules.left)
        if ledger.site_on(nodes, size, rules):
            self._took(before, rules, hold_s)
            self.spend_quota(job, workers)
            return nodes
        ledger.give(nodes, size)
        return None

    def rules(
        self,
        ledger: Ledger,
        jobs: Sequence[Job],
        hold_s: float = 0.0,
        *,
        claimed: bool,
        without: frozenset[str] = NOWHERE,
    ) -> Rules:
        """For these jobs, of which nobody may use the nodes `without`."""
        rules = self._rules(jobs, 0.0, hold_s, claimed=claimed)
        return rules._replace(
            may=[ledger.cells(self._state.nodes_of(name)) for name, _ in _kinds(jobs)],
            region=[ledger.cells(region.nodes) for region in self.regions],
            shut=[ledger.cells(without)],
        )

    def _rules(self, jobs: Sequence[Job], from_s: float, hold_s: float, *, claimed: bool) -> Rules:
        """What of them needs no ledger."""
        regions, limited = self.regions, claimed or self._rest is not None
        kinds = _kinds(jobs)
        numbers = {kind: at for at, kind in enumerate(kinds)}
        return Rules(
            kind=[numbers[job.eligible, job.quota] for job in jobs],
            claims=[int(claimed)] * len(jobs),
            limited=[int(limited or not job.preemptible) for job in jobs],
            widest=[job.widths[-1] for job in jobs],
            awaited=[
                0 if job.workers else region.awaited.get(job.id, 0)
                for job in (jobs if regions else ())
                for region in regions
            ],
            may=[],
            inside=[int(region.whole(job)) for job in kinds.values() for region in regions],
            region=[0 if region.quota else ALL_CELLS for region in regions],
            left=self._least(from_s, from_s + hold_s),
            spare=[0] * len(regions),
            shut=[0],
        )

    def quota_left(self, job: Job) -> float:
        """GPUs that its quota leaves now."""
        return self._quota_left.get(job.quota, FOREVER)

    def spend_quota(self, job: Job, workers: int) -> None:
        """So many more workers of it are started, or kept room for as far as there is any."""
        left = self._quota_left.get(job.quota)
        if left is not None:
            self._quota_left[job.quota] = max(0, left - workers * job.gpus_per_worker)

    def _least(self, from_s: float, until_s: float) -> list[int]:
        """GPUs of each region that no claim needs from then till then."""
        rest = self._rest
        if rest is None:
            return self._left
        return [floor(rest.least_free(region, from_s, until_s)) for region in self.regions]

    def _took(self, before: Sequence[int], rules: Rules, hold_s: float) -> None:
        """GPUs that were left before are taken for so long."""
        if self._rest is not None:
            for region, had, left in zip(self.regions, before, rules.left, strict=True):
                self._rest.take_on(region, had - left, hold_s)

    def _nodes(self, job: Job, closed: Iterable[Region]) -> Among:
        """The nodes that it may use outside these regions; the same object for the same nodes."""
        key = (job.eligible, frozenset(closed))
        may = self._state.eligible(job)
        if not key[1]:
            return may
        if key not in self._known:
            among = self._all if may is None else may
            self._known[key] = among.difference(*(region.nodes for region in key[1]))
        return self._known[key]


def _kinds(jobs: Sequence[Job]) -> dict[tuple[str, str], Job]:
    """Jobs that weigh on the same regions are of one kind: one of each, in order."""
    return {(job.eligible, job.quota): job for job in jobs}
