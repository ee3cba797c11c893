"""The room that claims have on a cluster, and how all of them together are kept in it.

If the least widths of all claims fit at once, they fit always, and no time profile is needed
(`concurrent_fit`). Otherwise they are planned one after the other on a profile, in a few orders; the first
order that keeps everybody in time is taken, else the one with the fewest that are late (Room).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from laxity_scheduler.capacity.eligibility import count_slots
from laxity_scheduler.capacity.ledger import STARTABLE
from laxity_scheduler.frame.fields import SIZE, TERMINATING, WORKERS
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import CLOSED_POOLS, PROMISABLE_POOLS, ClusterState, Node
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.claims import (
    CONFINED_FIRST,
    IN_TURN,
    ORDERS,
    ClaimOrder,
    ClaimRows,
    Claims,
)
from laxity_scheduler.promising.gpu_holds import HeldGpus
from laxity_scheduler.promising.node_sharing import NodeSharing
from laxity_scheduler.promising.planner import Planner, Plans
from laxity_scheduler.promising.regions import (
    Occupancy,
    OnRegion,
    Region,
    read_occupancy,
    regions_of,
)
from laxity_scheduler.promising.reserve import (
    Profile,
    ShareTable,
    add_gpus,
    find_end,
    slot_edges,
)
from laxity_scheduler.promising.whole_workers import (
    Frees,
    WholeWorkers,
    keep_steps,
    kinds_of,
    read_frees,
    whole_free,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """How all claims are kept: a share each; `late` are those that miss their deadline with it."""

    shares: ShareTable
    late: frozenset[str]
    profile: Profile  # what is left


@dataclass(frozen=True)
class Room:
    """The cluster's capacity for claims, and who is in the way for how long."""

    state: ClusterState
    forecasts: Forecasts
    claims: Claims
    ids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", frozenset(self.claims.names))

    @cached_property
    def planner(self) -> Planner:
        grows = len(self.state.nodes) == 1
        claimed = self.sharing.claimed_gpus if self.sharing.counts else None
        return Planner(self.forecasts, self.regions, grows, claimed, self.whole)

    @cached_property
    def sharing(self) -> NodeSharing:
        """Who keeps more of nodes from others than GPUs, and who may sit beside them."""
        return NodeSharing(self.state)

    @cached_property
    def capacity(self) -> int:
        """GPUs of training nodes, there or coming, less what other people's pods take."""
        state = self.state
        nodes = [node for node in state.nodes if node.pool in STARTABLE]
        frame = self.forecasts.frame
        workers = frame.column(WORKERS) + frame.column(TERMINATING)
        ours = int((workers * frame.column(SIZE)).sum())
        leave, stay = self._on_closed_nodes
        busy = sum(node.gpus - node.free_gpus - node.away_gpus for node in nodes)
        foreign = max(0, busy - ours + leave + stay)
        gpus = sum(node.gpus for node in nodes if node.pool in PROMISABLE_POOLS)
        return gpus + stay - foreign

    @property
    def _on_closed_nodes(self) -> tuple[int, int]:
        """GPUs of jobs that run on nodes closed to new workers: of those that can leave, and stay.

        Who stays needs no GPU elsewhere.
        """
        closed = {node.id for node in self.state.nodes if node.pool in CLOSED_POOLS}
        gpus = [0, 0]
        for job in self.state.running if closed else ():
            stays = job.pinned or not job.preemptible
            gpus[stays] += job.gpus_per_worker * sum(node in closed for node in job.nodes)
        return gpus[0], gpus[1]

    @cached_property
    def whole(self) -> tuple[WholeWorkers, ...]:
        """Kinds of workers with several GPUs, of jobs without a promise and of coming steps."""
        frame = self.forecasts.frame
        large = (frame.column(SIZE) > 1.0) & (frame.column(WORKERS) == 0.0) & ~frame.promised
        coming = [kept for kept in self.state.reserved if kept.gpus_per_worker > 1]
        return kinds_of([*frame.where(large), *coming]) if len(self.state.nodes) > 1 else ()

    @property
    def parts(self) -> int:
        """Of a profile: the whole cluster, regions, kinds of whole workers, GPUs as they are."""
        return 1 + len(self.regions) + len(self.whole) + self.sharing.counts

    @property
    def whole_parts(self) -> list[int]:
        """The parts on which all GPUs of the cluster are counted."""
        return [0, -1] if self.sharing.counts else [0]

    @cached_property
    def frees(self) -> Frees:
        """When running jobs can have left their nodes."""
        rows = self.rows
        gone = self.forecasts.frame.column(TERMINATING) > 0.0
        terminated_s = float(rows.ended_s[gone].max(initial=0.0))
        runs = np.flatnonzero(rows.runs).tolist()
        return read_frees(self.state, runs, rows.leaves_s, terminated_s)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """Where claims are counted beside the whole cluster."""
        return regions_of(self.state)

    def slots_for(self, job: Job) -> int:
        """How many of its workers the empty training nodes hold that it may use."""
        return count_slots(self.state, job, PROMISABLE_POOLS)

    @cached_property
    def unmoving(self) -> tuple[Job, ...]:
        """Jobs without a claim that run and cannot be stopped."""
        return tuple(
            job
            for job in self.state.running
            if job.pinned or not (job.preemptible or job.id in self.ids)
        )

    @cached_property
    def rows(self) -> ClaimRows:
        """The rows of the snapshot, which all claims are among."""
        return ClaimRows(self.forecasts.frame, self.claims)

    def empty_profile(self, horizon_s: float) -> Profile:
        """What is free if every claim were dropped: running claims hold theirs to the epoch's end."""
        until_s, gpus = self.rows.busy()
        for hold in self.held.unclaimed:
            until_s = np.append(until_s, hold.until_at - self.state.now)
            gpus = np.append(gpus, hold.gpus)
        last_s = float(until_s[until_s < FOREVER].max(initial=0.0))
        capacities = [self.on[region].capacity for region in self.regions]
        none = [0.0] * (self.parts - 1 - len(self.regions))
        profile = Profile.of(slot_edges(horizon_s, last_s), self.capacity, *capacities, *none)
        profile.occupy(until_s, gpus)
        for part, region in enumerate(self.regions, 1):
            profile.occupy(*self._busy_on(region), part)
        self._occupy_until_there(profile)
        self._add_unlisted(profile)
        for part, kind in enumerate(self.whole, 1 + len(self.regions)):
            may = self.state.nodes_of_set(kind.eligible)
            profile.free_from(*whole_free(self.frees, kind, may), self.frees.until_s, part)
        keep_steps(profile, self.state.reserved, self.state.now, self.regions, self.whole)
        if self.sharing.counts:
            profile.parts[-1] = profile.parts[0]
            self._occupy_for_needs(profile)
        return profile

    @cached_property
    def coming(self) -> Sequence[Node]:
        """Nodes that are not there yet and on which something is free."""
        nodes = self.state.nodes
        return [node for node in nodes if node.coming is not None and node.free_gpus > 0]

    def _occupy_until_there(self, profile: Profile) -> None:
        """GPUs of nodes that may come are free when these could be there."""
        if not self.coming:
            return
        until_s = [node.coming.within_s for node in self.coming if node.coming is not None]
        profile.occupy(until_s, [node.free_gpus for node in self.coming])
        for part, region in enumerate(self.regions, 1):
            gpus = [node.free_gpus * (node.id in region.nodes) for node in self.coming]
            profile.occupy(until_s, gpus, part)

    def _occupy_for_needs(self, profile: Profile) -> None:
        """What running jobs keep from others beyond their GPUs; who sits beside them keeps less."""
        for row in np.flatnonzero(self.rows.runs).tolist():
            job, until_s = self.state.jobs[row], float(self.rows.until_s[row])
            more = self.sharing.claimed_gpus(job) - job.gpus_per_worker
            profile.occupy([until_s], [more * job.workers])
            if job.id not in self.ids:
                beside = self.sharing.workers_beside(job) * job.gpus_per_worker
                profile.occupy([until_s], [-beside])
            for part, region in enumerate(self.regions, 1):
                if not region.quota:
                    profile.occupy([until_s], [more * region.sits(job)], part)

    def _add_unlisted(self, profile: Profile) -> None:
        """What workers hold beyond what their nodes list is there as long as they hold it."""
        usable = (node for node in self.state.nodes if node.pool in STARTABLE)
        unlisted = {node.id: -node.free_gpus for node in usable if node.free_gpus < 0}
        until_s = dict.fromkeys(unlisted, 0.0)
        for row in np.flatnonzero(self.rows.runs).tolist() if unlisted else ():
            for name in unlisted.keys() & set(self.state.jobs[row].nodes):
                until_s[name] = max(until_s[name], float(self.rows.holds_s[row]))
        for name, gpus in unlisted.items():
            profile.occupy([until_s[name]], [-gpus])
            for part, region in enumerate(self.regions, 1):
                profile.occupy([until_s[name]], [-gpus * (name in region.nodes)], part)

    def _busy_on(self, region: Region) -> tuple[list[float], list[float]]:
        """Until when how many GPUs of one region are busy."""
        on_it = self.on[region]
        until_s, gpus = [on_it.terminated_s], [float(on_it.terminating)]
        for row in np.flatnonzero(self.rows.runs).tolist():
            job = self.state.jobs[row]
            workers = region.sits(job)
            if workers:
                until_s.append(float(self.rows.until_s[row]))
                gpus.append(workers * job.gpus_per_worker)
        for hold in self.held.unclaimed:
            until_s.append(hold.until_at - self.state.now)
            gpus.append(hold.gpus * (hold.node in region.nodes))
        return until_s, gpus

    @cached_property
    def on(self) -> Mapping[Region, OnRegion]:
        """What each region has."""
        if not self.regions:
            return {}
        return dict(zip(self.regions, self._look_at_regions(), strict=True))

    @cached_property
    def occupancy(self) -> Occupancy:
        """On which regions running jobs sit."""
        return read_occupancy(self.state, tuple([region.nodes for region in self.regions]))

    def _look_at_regions(self) -> Iterable[OnRegion]:
        """Busy GPUs that no worker explains are of pods that terminate, first.

        A row says how many pods terminate, not where; the rest is other people's.
        """
        nodes, frame, occupancy = self.state.nodes, self.forecasts.frame, self.occupancy
        gpus, free, away = (
            np.array([getattr(node, name) for node in nodes])
            for name in ("gpus", "free_gpus", "away_gpus")
        )
        usable = np.array([node.pool in STARTABLE for node in nodes], dtype=np.bool_)
        training = np.array([node.pool in PROMISABLE_POOLS for node in nodes], dtype=np.bool_)
        there = np.array([node.coming is None for node in nodes], dtype=np.bool_)
        runs = np.where(frame.column(WORKERS) > 0.0, frame.column(SIZE), 0.0)
        ours = (occupancy.workers * runs[:, None]).sum(axis=0).tolist()
        gone = frame.column(TERMINATING)
        going = int((gone * frame.column(SIZE)).sum())
        terminated_s = float(self.rows.ended_s[gone > 0.0].max(initial=0.0))
        for place, region in enumerate(self.regions):
            if region.quota:
                yield self._of_quota(region, terminated_s)
                continue
            mine = occupancy.member[:-1, place]
            busy = int((gpus - free - away)[mine & usable].sum())
            unexplained = max(0, busy - int(ours[place]))
            yield OnRegion(
                capacity=int(gpus[mine & training].sum()) - max(0, unexplained - going),
                free=int(np.maximum(0, free)[mine & training & there].sum()),
                coming=int(np.maximum(0, free)[mine & ~there].sum()),
                terminating=min(unexplained, going),
                terminated_s=terminated_s,
            )

    def _of_quota(self, region: Region, terminated_s: float) -> OnRegion:
        going = sum(
            job.terminating_workers * job.gpus_per_worker
            for job in self.state.jobs
            if region.whole(job)
        )
        gpus, left = (self.state.quotas or {})[region.quota], self.state.quota_left[region.quota]
        return OnRegion(capacity=gpus, free=left, terminating=going, terminated_s=terminated_s)

    @cached_property
    def awaited(self) -> dict[str, float]:
        """Jobs for which GPUs are being freed or held, and in how many seconds they are free.

        These GPUs are no good for others, so who gets them first is planned first.
        """
        ready_s = {hold.job: 0.0 for hold in self.held.in_force}
        for job in self.state.running:
            if stopping(job) and job.stop_for:
                freed_s = self.forecasts.time_to_free_s(job)
                ready_s[job.stop_for] = max(ready_s.get(job.stop_for, 0.0), freed_s)
        return ready_s

    def sort_claims(self, claims: Claims, order: ClaimOrder) -> Claims:
        """In the order in which they are planned (`ClaimRows.sort_claims`)."""
        return self.rows.sort_claims(claims, order, self.awaited)

    def in_order(
        self, claims: Claims, profile: Profile, *, stay: bool = False, drops: bool = False
    ) -> Kept:
        """All claims planned one after the other on this profile, and taken out of it."""
        return Kept(*self.plan(claims, profile, stay=stay, drops=drops).keep(), profile)

    def plan(
        self, claims: Claims, profile: Profile, *, stay: bool = False, drops: bool = False
    ) -> Plans:
        """All claims planned one after the other (`Planner.plan_all`)."""
        held = self.held.find(claims)
        for place in np.flatnonzero(held.until_s).tolist():
            if claims.names[place] not in self.ids:  # else it is free in an empty profile
                add_gpus(profile, 0.0, held.until_s[place], held.gpus[place])
        return self.planner.plan_all(claims, held, profile, stay=stay, drops=drops)

    @cached_property
    def held(self) -> HeldGpus:
        """What is held for jobs that were given GPUs of others."""
        return HeldGpus(
            self.state,
            self.forecasts,
            self.ids,
            self.regions,
            parts=self.parts,
            whole_parts=self.whole_parts,
        )

    @cached_property
    def drain_s(self) -> float:
        """When the last GPU that can be made free is free; also of who starts on what is held for it."""
        return max(self.rows.drain_s, self.held.drain_s)

    @property
    def orders(self) -> tuple[ClaimOrder, ...]:
        """In which all claims are planned where one of them would be late."""
        return (*ORDERS, CONFINED_FIRST) if self.state.sets else ORDERS

    def find_best_plan(self, claims: Claims, horizon_s: float) -> Kept:
        """The best of a few orders on a time profile. The claims come in the order `as_planned`."""
        base = self.empty_profile(horizon_s)
        best = self.in_order(claims, base.copy(), stay=True)
        for order in self.orders:
            if not best.late:
                break
            other = self.in_order(self.sort_claims(claims, order), base.copy())
            best = other if len(other.late) < len(best.late) else best
        if best.late and self.awaited:
            other = self.in_order(self.rows.sort_claims(claims, IN_TURN, {}), base.copy())
            if len(other.late) < len(best.late) and self._take_what_they_await(other, base):
                best = other
        return best

    def _take_what_they_await(self, kept: Kept, profile: Profile) -> bool:
        """Whether all for whom GPUs are being freed start by the slot in which they are free."""
        return all(
            kept.shares[name].starts_s <= profile.edges[find_end(profile, ready_s)] + TINY_S
            for name, ready_s in self.awaited.items()
            if name in kept.shares
        )
