"""What is promised, planned over time, and whether a newcomer fits behind or between it."""

from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.eligibility import may_ever_start
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import PINNED, PROMISED_DUE_AT, QUEUED_AT
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job, Runs
from laxity_scheduler.promising.claims import (
    AS_PLANNED,
    BY_DEADLINE,
    IN_TURN,
    ClaimOrder,
    Claims,
    ageing_limits_s,
    claims_of,
    find_aged_jobs,
)
from laxity_scheduler.promising.concurrent_fit import ConcurrentFit
from laxity_scheduler.promising.planner import Plans
from laxity_scheduler.promising.regions import Region
from laxity_scheduler.promising.reserve import Claim, Profile, Share, ShareTable, find_end
from laxity_scheduler.promising.room import Kept, Room

SPARED: Final = 0.1  # of the time left, where others go before a promise ...
MOST_SPARED: Final = 16  # ... as long as no more of them are late: each more makes plans dearer
MOST_FIRST: Final = 4  # that have waited too long are tried before promises
REPLAN_CLAIMS: Final = 200  # above so many claims, others are planned behind promises only
MOST_OTHERS: Final = 10  # that a promise names


class Reservations:
    """All claims of a snapshot and how they are kept; what is left is for everybody else."""

    def __init__(
        self,
        state: ClusterState,
        forecasts: Forecasts,
        *,
        without: str = "",
        amended: Claim | None = None,
    ) -> None:
        """`without` leaves out a job's claim; `amended` is planned in the place of the old one."""
        self.state, self.forecasts = state, forecasts
        self.aged = [
            job
            for job in find_aged_jobs(forecasts.frame)
            if job.id != without and (not job.eligible or may_ever_start(state, job))
        ]
        claims = self._find_claims(without)
        if amended is not None:
            claims.deadline_s[[name == amended.job.id for name in claims.names]] = (
                amended.deadline_s
            )
        self.room = Room(state, forecasts, claims)
        self.claims = self.room.sort_claims(claims, AS_PLANNED)
        self.shares = ShareTable()
        self.late: frozenset[str] = frozenset()
        self.behind: frozenset[str] = frozenset()  # who claims what promises leave
        self._together: ConcurrentFit | None = None
        self._profile: Profile | None = None
        self._keep_all(amended.job.id if amended is not None else "")

    def _find_claims(self, without: str) -> Claims:
        """Of promised jobs, then of those that have waited too long."""
        frame = self.forecasts.frame
        due_at = frame.column(PROMISED_DUE_AT)
        rows = np.flatnonzero(frame.promised & (frame.column(PINNED) == 0.0))
        rows = rows[[job.id != without for job in frame.at(rows)]] if without else rows
        promised = Claims(frame.at(rows), rows, due_at[rows] - self.state.now)
        return promised + claims_of(frame, self.aged, [FOREVER] * len(self.aged))

    @cached_property
    def _horizon_s(self) -> float:
        """How far plans look; asked for only where there is not room for all at once."""
        return self.room.rows.horizon_s(self.room.claims)

    @property
    def first_names(self) -> list[str]:
        """The jobs that a new promise is said to rest on."""
        return [job.id for job in self.claims.jobs[:MOST_OTHERS]]

    @property
    def roomy(self) -> bool:
        """Whether all claims run at once, so that no time profile was needed."""
        return self._together is not None

    @property
    def reach_s(self) -> float:
        """What is planned to start up to then may rest on jobs that must be stopped for it."""
        profile = self.profile()
        return float(profile.edges[find_end(profile, self.room.drain_s)])

    def stoppable(self, gpus: int) -> list[Job]:
        """The running jobs without a claim that free so many GPUs soonest; [] if all are too few."""
        missing, stopped = gpus - self.state.free_gpus, []
        missing += sum(hold.gpus for hold in self.room.held.unclaimed)
        for job in self._unclaimed:
            if missing <= 0:
                break
            stopped.append(job)
            missing -= job.workers * job.gpus_per_worker
        return stopped if missing <= 0 else []

    @cached_property
    def _unclaimed(self) -> list[Job]:
        """The running jobs that can be stopped for any claim, soonest free first."""
        jobs = [
            job
            for job in self.state.running
            if job.id not in self.room.ids and job.preemptible and not job.pinned
        ]
        return sorted(jobs, key=self.forecasts.time_to_free_s)

    def left_by_claims(self) -> Profile:
        """What jobs without a claim may use, per slot; the caller may change it."""
        profile = self.profile().copy()
        self.room.held.free_unclaimed(profile, self.claims)
        return profile

    def due_width(self, share: Share) -> int:
        """The width planned for now, or so soon that others must be stopped for it already."""
        return max(width for at_s, width in share.steps if at_s <= self.reach_s)

    @property
    def spare_gpus(self) -> int:
        """GPUs that no claim will need, whatever happens; meant for jobs that cannot be stopped."""
        return self._together.left if self._together is not None else 0

    def spare_on(self, region: Region) -> int:
        """GPUs of a region that no claim will need, whatever happens."""
        return self._together.spare_gpus_on(region) if self._together is not None else 0

    def fits(self, claim: Claim, *, borrowed: int = 0) -> Share | None:
        """The share with which a newcomer would be in time behind all claims; nothing is kept."""
        if self._together is not None and not borrowed:
            share = self._together.add(claim, keep=False)
            if share is not None:
                return share
        profile = self._without_own(claim.job, self.profile(claim.deadline_s))
        if borrowed:
            profile = profile.copy()
            profile.parts[0] += borrowed
            profile.parts[1 + len(self.room.regions) :] += borrowed
        return self.room.planner.least(claim, profile)

    def earliest(self, job: Job) -> Share | None:
        """The share that ends soonest behind all claims."""
        profile = self.profile(2.0 * self.forecasts.trajectory_s(job))
        return self.room.planner.earliest(job, self._without_own(job, profile))

    def admit(self, claim: Claim) -> Share | None:
        """Count a newcomer among the claims if all of them can still be kept, perhaps replanned."""
        share = self._together.add(claim, keep=True) if self._together is not None else None
        if share is None:
            share = self.fits(claim)
            if share is not None:
                self.room.plan(self._as_claims(claim), self.profile(claim.deadline_s))
                self._together = None
        elif self._profile is not None:
            self._profile.reserve(share, self.room.planner.gpu_needs(claim.job))
        if share is None:
            return self._replan_orders(claim)
        self.claims += self._as_claims(claim)
        self.shares.add(claim.job.id, share)
        return share

    def admit_all(self, claims: Claims, widths: Ints, finish_s: Floats, sizes: Ints) -> int:
        """Count the first of these newcomers, each on one width, as long as all run at once."""
        if self._together is None:
            return 0
        count = self._together.count(claims.jobs, widths * sizes)
        claims = claims.at(slice(count))
        self.claims += claims
        self.shares.add_widths(claims.names, widths[:count], finish_s[:count])
        if self._profile is not None:
            for job in claims.jobs:
                needed_gpus = self.room.planner.gpu_needs(job)
                self._profile.reserve(self.shares[job.id], needed_gpus)
        return count

    def admit_behind(self, plans: Plans, places: slice) -> int:
        """Count the first of these newcomers, which wait, each planned behind all claims.

        Until one is late, or due beyond what the profile shows. How many.
        """
        claims = plans.claims.at(places)
        if self._together is not None or self._profile is None or not claims.jobs:
            return 0
        due_s = claims.deadline_s
        shown = np.where(due_s <= self._horizon_s, due_s, -1.0)
        count = self.room.planner.plan_newcomers(plans, places.start, shown, self._profile)
        if count:
            claims = claims.at(slice(count))
            self.claims += claims
            rows = plans.share_rows(slice(places.start, places.start + count))
            self.shares.add_rows(claims.names, rows)
        return count

    def plan_behind(self, claims: Claims) -> None:
        """Count those of these claims that are in time on what is left, in order of deadline.

        Who would be late claims nothing. Where some would be, all claims are planned together: whoever
        was promised with time to spare lets others go first, and is still early by a margin.
        """
        horizon_s = self.room.rows.horizon_s(claims)
        kept = self._plan_in_turn(claims, self.profile(horizon_s))
        few = 0 < len(self.claims.jobs) <= REPLAN_CLAIMS - len(claims.jobs)
        if 0 < len(kept.late) <= MOST_SPARED and few and not self.late and not self.aged:
            spared = self.claims.deadline_s * (1.0 - SPARED)
            early = Claims(self.claims.jobs, self.claims.rows, spared)
            base = self.room.empty_profile(max(horizon_s, self._horizon_s))
            together = self._plan_in_turn(early + claims, base)
            if len(together.late) < len(kept.late) and together.late.isdisjoint(early.names):
                self.shares, kept = ShareTable(), together
                self.shares.add_rows(early.names, kept.shares.rows_of(early.names))
        names = [name for name in claims.names if name in kept.shares]
        if names:
            self._together, self._profile, self.behind = None, kept.profile, frozenset(names)
            self.claims += claims.at(np.flatnonzero([name in self.behind for name in claims.names]))
            self.shares.add_rows(names, kept.shares.rows_of(names))

    def _plan_in_turn(self, claims: Claims, profile: Profile) -> Kept:
        """By deadline, running jobs before others unless fewer are late without that."""
        first, second = (self.room.sort_claims(claims, order) for order in (IN_TURN, BY_DEADLINE))
        kept = self.room.in_order(first, profile.copy(), stay=True, drops=True)
        if not kept.late:
            return kept
        other = self.room.in_order(second, profile.copy(), stay=True, drops=True)
        return other if len(other.late) < len(kept.late) else kept

    def profile(self, horizon_s: float = 0.0) -> Profile:
        """What the claims leave, per slot, at least as far as the horizon. Not to be changed."""
        profile = self._profile
        if profile is None or (self._horizon_s < horizon_s < FOREVER):
            far_s = max(self._horizon_s, horizon_s if horizon_s < FOREVER else 0.0)
            self._horizon_s = far_s
            profile = self._profile = self.room.empty_profile(far_s)
            order = ClaimOrder(lambda *_: (starts_s, self.claims.deadline_s))  # as planned now
            starts_s = self.shares.rows_of(self.claims.names).starts_s
            self._seat(self.room.plan(self.room.sort_claims(self.claims, order), profile))
        return profile

    def _seat(self, plans: Plans) -> None:
        """The shares of all claims sit where the profile counts them from now on."""
        planned = [(at, name) for at, name in enumerate(plans.claims.names) if name in self.shares]
        names, shares = [name for _, name in planned], ShareTable()
        seats = plans.shares.seats[[at for at, _ in planned]]
        shares.add_rows(names, self.shares.rows_of(names)._replace(seats=seats))
        self.shares = shares

    def _keep_all(self, amended: str) -> None:
        together = ConcurrentFit(self.room)
        shares = together.add_all(self.claims, amended=amended)
        if shares is None:
            self._take(self.room.find_best_plan(self.claims, self._horizon_s))
        else:
            self._together, self.shares = together, shares
        if self.aged and not self.late and len(self.claims.jobs) <= REPLAN_CLAIMS:
            self._let_aged_go_first()

    def _let_aged_go_first(self) -> None:
        """Promises with time to spare make way for one that waits for ten of its run times otherwise.

        They are still early by a margin then. Who has waited longest, in run times, is tried first.
        """
        frame, names = self.forecasts.frame, np.array(self.claims.names)
        rows = frame.row_numbers(self.aged)
        limits_s = ageing_limits_s(frame, rows)
        waited_s = self.state.now - frame.column(QUEUED_AT)[rows]
        reach_s = np.maximum(2.0 * limits_s - waited_s, self.room.drain_s)
        starts_s = self.shares.rows_of([job.id for job in self.aged]).starts_s
        late = np.flatnonzero(starts_s > reach_s + TINY_S)
        early_s = self.claims.deadline_s * (1.0 - SPARED)
        for place in late[np.argsort(-(waited_s / limits_s)[late], kind="stable")][:MOST_FIRST]:
            due_s = np.where(names == self.aged[place].id, 0.0, early_s)
            claims = self.room.sort_claims(replace(self.claims, deadline_s=due_s), BY_DEADLINE)
            due_s = np.where(claims.deadline_s > 0.0, claims.deadline_s, FOREVER)
            base = self.room.empty_profile(self._horizon_s)
            kept = self.room.in_order(replace(claims, deadline_s=due_s), base)
            first = kept.shares.get(self.aged[place].id)
            if not kept.late and first is not None and first.starts_s <= reach_s[place] + TINY_S:
                self._take(kept)
                return

    def _take(self, kept: Kept) -> None:
        self.shares, self.late, self._profile = kept.shares, kept.late, kept.profile
        self._together = None

    def _replan_orders(self, claim: Claim) -> Share | None:
        """Other orders of all claims, in which nobody is late who is in time now."""
        if len(self.claims.jobs) > REPLAN_CLAIMS:
            return None
        newcomer = self._as_claims(claim)
        claims = self.claims + newcomer
        horizon_s = max(self._horizon_s, self.room.rows.horizon_s(newcomer))
        base = self.room.empty_profile(horizon_s)
        for order in self.room.orders:
            replanned = self.room.in_order(self.room.sort_claims(claims, order), base.copy())
            if self.harms_nobody(replanned):
                self.claims, self._horizon_s = claims, horizon_s
                self._take(replanned)
                return replanned.shares[claim.job.id]
        return None

    def _as_claims(self, claim: Claim) -> Claims:
        return claims_of(self.forecasts.frame, [claim.job], [claim.deadline_s])

    def harms_nobody(self, kept: "Kept | Reservations") -> bool:
        """Whether nobody becomes late, or later, by other shares.

        A plan in whole slots may count a claim as late that will just be in time.
        """
        return kept.late <= self.late and all(
            kept.shares[late].finish_s <= self.shares[late].finish_s + TINY_S
            for late in kept.late
            if late in kept.shares and late in self.shares
        )

    def _without_own(self, job: Job, profile: Profile) -> Profile:
        """A running newcomer's own GPUs are not in its way."""
        if job.workers and not stopping(job):
            profile = profile.copy()
            self.room.planner.release(job, self.forecasts.time_to_free_s(job), profile)
        return profile


def promised_gpu_s(reservations: Reservations, namespace: str) -> float:
    """GPU-seconds that its promised jobs, and the coming steps of its groups, still reserve."""
    state = reservations.state
    jobs = sum(
        reservation_gpu_s(job, runs_of(share, state.now), state.now)
        for job in reservations.claims.jobs
        if job.namespace == namespace and (share := reservations.shares.get(job.id)) is not None
    )
    steps = sum(
        kept.gpus * (kept.until_at - kept.from_at)
        for kept in state.reserved
        if kept.step.startswith(f"{namespace}/")
    )
    return jobs + steps


def runs_of(share: Share, now: float) -> Runs:
    """The widths of a plan over time, without those that are over."""
    ends = [now + at_s for at_s, _ in share.steps[1:]] + [now + share.finish_s]
    runs = zip(ends, share.steps, strict=True)
    return tuple([(until_at, workers) for until_at, (_, workers) in runs if until_at > now])


def reservation_gpu_s(job: Job, runs: Runs, now: float) -> float:
    """GPU-seconds that runs still reserve."""
    spent, before = 0.0, now
    for until_at, workers in runs:
        if workers:  # who waits for ever spends nothing
            spent += max(0.0, until_at - before) * workers * job.gpus_per_worker
        before = max(before, until_at)
    return spent
