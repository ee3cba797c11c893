"""Where a job's workers may go when other jobs can use some nodes only.

A promise that rests on few nodes is kept only if nobody else sits on them for too long. So a job
that could go elsewhere takes GPUs of a region only if no claim there will need them while it holds
them, and even then after all others, the region of fewest nodes last. Who can be stopped in time
may sit anywhere. Without regions (`regions`) there is nothing to think about: any eligible node.

What is left of quotas now is counted here, too: free nodes say nothing about it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import floor

from laxity_scheduler.capacity import placement
from laxity_scheduler.capacity.ledger import Among, Ledger
from laxity_scheduler.capacity.placement import ALL_CELLS, NO_LIMIT, Rules
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.cluster import NO_NODES, ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.regions import Region
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.promising.reserve import SLOTS, Profile, find_end, find_slot
from laxity_scheduler.promising.whole_nodes import Keeper, find_kept_nodes, shut_nodes


class PlacementRules:
    """The nodes that jobs may start or grow on, as one after the other takes its own."""

    def __init__(self, state: ClusterState, reservations: Reservations) -> None:
        self._state, self._reservations = state, reservations
        self.regions = reservations.room.regions
        self._known: dict[tuple[str, frozenset[Region]], frozenset[str]] = {}
        self._quotas = {name: number for number, name in enumerate(state.quotas or ())}
        self._quota_left = [*(state.quota_left[name] for name in self._quotas), NO_LIMIT]

    @cached_property
    def _rest(self) -> Profile | None:
        """What claims leave over time; None where all of them run at once, or may use all nodes."""
        apart = self.regions and not self._reservations.roomy
        return self._reservations.left_by_claims() if apart else None

    @cached_property
    def _left(self) -> list[int]:
        """GPUs of each region that no claim needs, by slot; where all run at once, that none ever needs."""
        if self._rest is None:
            return [self._reservations.spare_on(region) for region in self.regions]
        parts = self._rest.parts[1 : 1 + len(self.regions)].tolist()
        return [floor(gpus) for part in parts for gpus in part]

    @cached_property
    def kept(self) -> Mapping[str, Keeper]:
        """The nodes that promised jobs will need whole."""
        rest_s = self._reservations.forecasts.rest_s

        def open_to(job: Job, from_s: float) -> Among:
            width = self._reservations.shares[job.id].widest
            return self.open_to(job, rest_s(job, width), claimed=True, from_s=from_s)

        return find_kept_nodes(self._reservations, open_to)

    @cached_property
    def _all(self) -> frozenset[str]:
        return frozenset(node.id for node in self._state.nodes)

    def open_to(self, job: Job, hold_s: float, *, claimed: bool, from_s: float = 0.0) -> Among:
        """The nodes that a worker of it may take for so long from then, without harm to any claim."""
        if not self.regions:
            return self._state.eligible_nodes(job)
        size, rules = job.gpus_per_worker, self._rules([job], from_s, [hold_s], claimed=claimed)
        if placement.look_up_spare(rules, 0, size) < size:
            return NO_NODES
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
        from_s: float = 0.0,
        patience_s: float = 0.0,
    ) -> tuple[str, ...] | None:
        """`Ledger.place` where it may go; on nodes that others need more only if it must be.

        `from_s`: when these nodes are there. `patience_s`: how long it can wait for those who need whole nodes.
        """
        rules = self.rules(ledger, [job], [hold_s], claimed=claimed, from_s=from_s)
        with ledger.closed(shut_nodes(self.kept, job, hold_s, patience_s)):
            return ledger.site(workers, job.shape, rules)

    def place_all(
        self, ledger: Ledger, jobs: Sequence[Job], tries: Ints, gpus: Ints, *, claimed: bool
    ) -> list[tuple[str, ...]]:
        """`place` for one after the other, where all claims run at once, up to the first without."""
        rules = self.rules(ledger, jobs, [0.0] * len(jobs), claimed=claimed)
        return ledger.site_all(tries, gpus, rules, stops=True, needs=[job.needs for job in jobs])

    def place_on(
        self, ledger: Ledger, job: Job, workers: int, hold_s: float, *, claimed: bool
    ) -> tuple[str, ...] | None:
        """`Ledger.place_on` its own nodes: where a running job may grow."""
        rules = self.rules(ledger, [job], [hold_s], claimed=claimed)
        return ledger.site_on(job.nodes, workers, job.shape, rules)

    def rules(
        self,
        ledger: Ledger,
        jobs: Sequence[Job],
        hold_s: Sequence[float],
        *,
        claimed: bool,
        without: frozenset[str] = NO_NODES,
        from_s: float = 0.0,
    ) -> Rules:
        """For these jobs, each of which holds what it takes for so long; none may use `without`."""
        rules = self._rules(jobs, from_s, hold_s, claimed=claimed)
        return rules._replace(
            may=[ledger.cells(self._state.nodes_of_set(name)) for name, _ in _kinds(jobs)],
            region=[ledger.cells(region.nodes) for region in self.regions],
            shut=[ledger.cells(without)],
        )

    def _rules(
        self, jobs: Sequence[Job], from_s: float, hold_s: Sequence[float], *, claimed: bool
    ) -> Rules:
        """What of them needs no ledger."""
        regions, limited = self.regions, claimed or self._rest is not None
        since, until, slots, stride = self._slots(from_s, hold_s)
        kinds = _kinds(jobs)
        numbers = {kind: number for number, kind in enumerate(kinds)}
        return Rules(
            kind=[numbers[job.eligible, job.quota] for job in jobs],
            claims=[int(claimed)] * len(jobs),
            limited=[int(limited or not job.preemptible) for job in jobs],
            widest=[job.widths[-1] for job in jobs],
            awaited=[gpus for job in jobs if regions for gpus in self._count_seats(job)],
            may=[],
            inside=[int(region.whole(job)) for job in kinds.values() for region in regions],
            region=[0 if region.quota else ALL_CELLS for region in regions],
            left=self._left,
            since=[since] * len(jobs),
            until=until,
            spare=[0] * len(regions),
            shut=[0],
            quota=[self._quotas.get(name, len(self._quotas)) for _, name in kinds],
            quota_left=self._quota_left,
            slots=slots,
            stride=stride,
        )

    def _count_seats(self, job: Job) -> list[int]:
        """GPUs of each region with which a claim was counted though it could go elsewhere."""
        if job.workers:
            return [0] * len(self.regions)
        awaited = [region.awaited.get(job.id, 0) for region in self.regions]
        share = None if self._rest is None else self._reservations.shares.get(job.id)
        if share is None or not share.seats:
            return awaited
        seats = share.seats[1 : 1 + len(self.regions)]
        return [gpus + int(taken) for gpus, taken in zip(awaited, seats, strict=True)]

    def quota_left(self, job: Job) -> float:
        """GPUs that its quota leaves now."""
        number = self._quotas.get(job.quota)
        return FOREVER if number is None else self._quota_left[number]

    def spend_quota(self, job: Job, workers: int) -> None:
        """So many more workers of it are kept room for, as far as there is any."""
        number = self._quotas.get(job.quota)
        if number is not None:
            left = self._quota_left[number] - workers * job.gpus_per_worker
            self._quota_left[number] = max(0, left)

    def _slots(self, from_s: float, hold_s: Sequence[float]) -> tuple[int, list[int], int, int]:
        """From and before which slots; how many slots are looked at, and how many there are."""
        rest = self._rest
        if rest is None:
            return 0, [1] * len(hold_s), 1, 1
        ends = [
            len(rest.free) if until_s == FOREVER else min(find_end(rest, until_s), SLOTS)
            for until_s in (from_s + held_s for held_s in hold_s)
        ]
        return min(find_slot(rest, from_s), SLOTS - 1), ends, SLOTS, len(rest.free)

    def _nodes(self, job: Job, closed: Iterable[Region]) -> Among:
        """The nodes that it may use outside these regions; the same object for the same nodes."""
        key = (job.eligible, frozenset(closed))
        may = self._state.eligible_nodes(job)
        if not key[1]:
            return may
        if key not in self._known:
            among = self._all if may is None else may
            self._known[key] = among.difference(*(region.nodes for region in key[1]))
        return self._known[key]


def _kinds(jobs: Sequence[Job]) -> dict[tuple[str, str], Job]:
    """Jobs that weigh on the same regions are of one kind: one of each, in order."""
    return {(job.eligible, job.quota): job for job in jobs}
