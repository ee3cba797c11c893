"""The room that claims have on a cluster, and how all of them together are kept in it.

If the least widths of all claims fit at once, they fit always, and no time profile is needed
(Tally). Otherwise they are planned one after the other on a profile, in a few orders; the first
order that keeps everybody in time is taken, else the one with the fewest that are late (Room).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from laxity_scheduler.claims import ORDERS, Order, Terms, as_planned, by_deadline, may_stop
from laxity_scheduler.forecast import TINY_S, Forecasts, stopping
from laxity_scheduler.ledger import USABLE, Ledger
from laxity_scheduler.reserve import SLOTS, Claim, Planner, Profile, Share, slot_edges
from laxity_scheduler.state import FOREVER, ClusterState, Job


@dataclass(frozen=True, slots=True)
class Kept:
    """How all claims are kept: a share each; `late` are those that miss their deadline with it."""

    shares: dict[str, Share]
    late: frozenset[str]
    profile: Profile  # what is left


@dataclass(frozen=True)
class Room:
    """The cluster's capacity for claims, and who is in the way for how long."""

    state: ClusterState
    forecasts: Forecasts
    terms: Terms
    claims: tuple[Claim, ...]
    borrowed: int = 0
    ids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", frozenset(claim.job.id for claim in self.claims))

    @cached_property
    def planner(self) -> Planner:
        grows = self.terms.grow_anywhere or len(self.state.nodes) == 1
        return Planner(self.forecasts, grows=grows)

    @cached_property
    def capacity(self) -> int:
        """GPUs of training nodes, less what other people's pods take."""
        state = self.state
        nodes = [node for node in state.nodes if node.pool in USABLE]
        ours = sum(
            (job.workers + job.terminating_workers) * job.gpus_per_worker for job in state.jobs
        )
        foreign = max(0, sum(node.gpus - node.free_gpus for node in nodes) - ours)
        return sum(node.gpus for node in nodes if node.pool == "training") - foreign + self.borrowed

    @cached_property
    def unmoving(self) -> tuple[Job, ...]:
        """Jobs without a claim that run and cannot be stopped."""
        return tuple(
            job
            for job in self.state.running
            if job.pinned or not (job.preemptible or job.id in self.ids)
        )

    @cached_property
    def drain_s(self) -> float:
        """When the last GPU that can be made free is free, in seconds from now."""
        times = [
            self.forecasts.freed_s(job)
            for job in self.state.running
            if may_stop(job) and job.id not in self.ids
        ]
        times += [
            self.forecasts.freed_s(claim.job)
            for claim in self.claims
            if claim.job.workers > self.forecasts.curve(claim.job).least
        ]
        times += [
            _terminated_s(job, self.forecasts) for job in self.state.jobs if job.terminating_workers
        ]
        return max(times, default=0.0)

    def horizon_s(self, claims: Sequence[Claim]) -> float:
        ends = [1.0]
        for claim in claims:
            rest_s = self.forecasts.trajectory_s(claim.job)
            ends.append(claim.deadline_s if claim.deadline_s < FOREVER else 0.0)
            ends.append(2.0 * rest_s if rest_s < FOREVER else 0.0)
        return max(ends)

    def empty_profile(self, horizon_s: float) -> Profile:
        """What is free if every claim were dropped: running claims hold theirs to the epoch's end."""
        until_s: list[float] = []
        gpus: list[int] = []
        unmoving = frozenset(job.id for job in self.unmoving)
        for job in self.state.jobs:
            if job.terminating_workers:
                until_s.append(_terminated_s(job, self.forecasts))
                gpus.append(job.terminating_workers * job.gpus_per_worker)
            if job.workers:
                until_s.append(self._until_s(job, stays=job.id in unmoving))
                gpus.append(job.gpus)
        for hold in self.state.holds:
            if hold.until_at > self.state.now and hold.job not in self.ids:
                until_s.append(hold.until_at - self.state.now)
                gpus.append(hold.gpus)
        last_s = max((at_s for at_s in until_s if at_s < FOREVER), default=0.0)
        profile = Profile(slot_edges(horizon_s, last_s), self.capacity)
        profile.occupy(until_s, gpus)
        return profile

    @cached_property
    def awaited(self) -> dict[str, float]:
        """Jobs for which GPUs are being freed or held, and in how many seconds they are free.

        These GPUs are no good for others, so who gets them first is planned first.
        """
        ready_s = {hold.job: 0.0 for hold in self.state.holds if hold.until_at > self.state.now}
        for job in self.state.running:
            if stopping(job) and job.stop_for:
                freed_s = self.forecasts.freed_s(job)
                ready_s[job.stop_for] = max(ready_s.get(job.stop_for, 0.0), freed_s)
        return ready_s

    def ordered(self, claims: Iterable[Claim], order: Order) -> list[Claim]:
        """What cannot be stopped first; running before awaited before waiting jobs, unless by EDF.

        By EDF a running job may have to make way, but nobody comes before an awaited job.
        """
        mixed = order is by_deadline

        def rank(claim: Claim) -> tuple[int, float]:
            job = claim.job
            if job.workers and not stopping(job):
                return (0 if not job.preemptible else 2 if mixed else 1, 0.0)
            ready_s = self.awaited.get(job.id)
            return (2, 0.0) if ready_s is None else (1, ready_s)

        return sorted(claims, key=lambda claim: (rank(claim), order(claim)))

    def _until_s(self, job: Job, *, stays: bool) -> float:
        if not stays:
            return self.forecasts.freed_s(job)
        return FOREVER if job.pinned else self.forecasts.trajectory_s(job)

    def plan_one(
        self, claim: Claim, profile: Profile, *, stay: bool = False
    ) -> tuple[Share | None, bool]:
        """Plan a claim on a profile and take its share out of it; and whether it is in time.

        `stay`: a running job keeps its width if it is in time with it.
        """
        job = claim.job
        staying = 0 if stopping(job) else job.workers
        freed_s = self.forecasts.freed_s(job) if staying else 0.0
        if staying:
            profile.add(0.0, freed_s, job.gpus)
        share = self._as_it_runs(claim, profile) if stay or not job.preemptible else None
        share = share or self.planner.least(claim, profile)
        in_time = share is not None
        if share is None:
            share = self.planner.earliest(job, profile)
        if share is not None:
            profile.reserve(share, job.gpus_per_worker)
        surplus = staying - (share.workers_now if share else 0)
        if surplus > 0:
            profile.add(0.0, freed_s, -surplus * job.gpus_per_worker)
        return share, in_time

    def _as_it_runs(self, claim: Claim, profile: Profile) -> Share | None:
        """Its present width to the end, if that is in time and nobody planned before needs it."""
        job = claim.job
        if not job.workers or stopping(job):
            return None
        share = self.planner.fixed(job, ((0.0, job.workers),))
        if share.finish_s > claim.deadline_s + TINY_S:
            return None
        free = profile.free[: min(profile.end(share.finish_s), SLOTS)]
        return share if (free >= job.gpus).all() else None

    def in_order(self, order: Iterable[Claim], profile: Profile, *, stay: bool = False) -> Kept:
        shares: dict[str, Share] = {}
        late: set[str] = set()
        for claim in order:
            share, in_time = self.plan_one(claim, profile, stay=stay)
            if share is not None:
                shares[claim.job.id] = share
            if not in_time:
                late.add(claim.job.id)
        return Kept(shares, frozenset(late), profile)

    def kept(self, claims: Sequence[Claim], horizon_s: float) -> Kept:
        """The best of a few orders on a time profile."""
        base = self.empty_profile(horizon_s)
        best = self.in_order(self.ordered(claims, as_planned), base.copy(), stay=True)
        for order in ORDERS:
            if not best.late:
                break
            kept = self.in_order(self.ordered(claims, order), base.copy())
            best = kept if len(kept.late) < len(best.late) else best
        return best


class Tally:
    """Claims that all run at once, each on one width: while they fit, no time profile is needed."""

    def __init__(self, room: Room) -> None:
        self._room = room
        state = room.state
        nodes = [node for node in state.nodes if node.pool == "training"]
        self.left = room.capacity - sum(job.gpus for job in room.unmoving)
        self._free = sum(node.free_gpus for node in nodes)
        self._ledger: Ledger | None = None
        if len(nodes) > 1 and any(job.gpus_per_worker > 1 for job in state.jobs):
            self._ledger = Ledger([node.id for node in nodes], [node.gpus for node in nodes])
            for job in room.unmoving:
                _take_all(self._ledger, job.nodes, job.gpus_per_worker)

    def add(self, claim: Claim, *, keep: bool) -> Share | None:
        """Its share, counted if `keep`; None (nothing counted) if it does not fit with the rest."""
        gpus = claim.job.gpus_per_worker
        staying = 0 if stopping(claim.job) else claim.job.workers
        share = self._alone(claim, 0.0)
        if share and (share.widest - staying) * gpus > self._free:
            share = self._alone(claim, self._room.drain_s)
        if share is None or share.widest * gpus > self.left:
            return None
        if not self._packs(claim.job, share.widest, keep=keep):
            return None
        if keep:
            self._free -= max(0, share.widest - staying) * gpus
            self.left -= share.widest * gpus
        return share

    def _alone(self, claim: Claim, after_s: float) -> Share | None:
        """On the least width that is in time, from `after_s` on."""
        job, forecasts = claim.job, self._room.forecasts
        for width in forecasts.curve(job).widths:
            finish_s = forecasts.rest_s(job, width, after_s=after_s)
            if finish_s <= claim.deadline_s + TINY_S and finish_s < FOREVER:
                later = after_s > 0.0 and width > job.workers
                steps = ((0.0, job.workers), (after_s, width)) if later else ((0.0, width),)
                return Share(steps, finish_s)
        return None

    def _packs(self, job: Job, workers: int, *, keep: bool) -> bool:
        """Whether the workers fit on nodes: big ones can fail where the sum fits."""
        if self._ledger is None:
            return True
        ledger = self._ledger if keep else self._ledger.copy()
        stay = _take_all(ledger, job.nodes[:workers], job.gpus_per_worker)
        return ledger.place(workers - stay, job.gpus_per_worker) is not None


def _terminated_s(job: Job, forecasts: Forecasts) -> float:
    curve = forecasts.curve(job)
    return curve.stop_s(curve.least, "p90")


def _take_all(ledger: Ledger, nodes: Sequence[str], gpus: int) -> int:
    """Take what can be taken on these nodes; how many workers that is."""
    taken = 0
    for node in nodes:
        if ledger.place_on((node,), 1, gpus) is not None:
            taken += 1
    return taken
