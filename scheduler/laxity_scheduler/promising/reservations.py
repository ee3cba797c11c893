"""What is promised, planned over time, and whether a newcomer fits behind or between it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.ledger import may_ever_start
from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.fields import PROMISED_DUE_AT
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.claims import (
    AS_PLANNED,
    Terms,
    find_aged_jobs,
)
from laxity_scheduler.promising.concurrent_fit import ConcurrentFit
from laxity_scheduler.promising.kept_claims import KeptClaims
from laxity_scheduler.promising.planner import Plans
from laxity_scheduler.promising.regions import Region
from laxity_scheduler.promising.reserve import Claim, Profile, Share
from laxity_scheduler.promising.room import Kept, Room
from laxity_scheduler.promising.share_table import ShareTable

if TYPE_CHECKING:
    from laxity_scheduler.frame.arrays import Ints


class Reservations:
    """All claims of a snapshot and how they are kept; what is left is for everybody else."""

    def __init__(
        self,
        state: ClusterState,
        forecasts: Forecasts,
        terms: Terms,
        *,
        without: str = "",
        amended: Claim | None = None,
    ) -> None:
        """`without` leaves out a job's claim; `amended` is planned in the place of the old one."""
        self.state, self.forecasts, self.terms = state, forecasts, terms
        self.aged = tuple(find_aged_jobs(state, forecasts, terms, without))
        if state.sets:
            self.aged = tuple(
                job for job in self.aged if not job.eligible or may_ever_start(state, job)
            )
        frame = forecasts.frame
        left_s = (frame.column(PROMISED_DUE_AT)[frame.promised] - state.now).tolist()
        claims = [
            claim
            for claim in construct_many(Claim, frame.where(frame.promised), left_s)
            if claim.job.id != without and not claim.job.pinned
        ]
        claims += [Claim(job, FOREVER) for job in self.aged]
        if amended is not None:
            claims = [amended if claim.job.id == amended.job.id else claim for claim in claims]
        self.room = Room(state, forecasts, terms, tuple(claims))
        self.claims = self.room.sort_claims(claims, AS_PLANNED)
        self.shares = ShareTable()
        self.late: frozenset[str] = frozenset()
        self._together: ConcurrentFit | None = None
        self._profile: Profile | None = None
        self._kept: KeptClaims | None = None  # of these claims and shares
        self._known_horizon_s: float | None = None
        self._first = tuple(self.claims)
        self._keep_all(amended.job.id if amended is not None else "")

    @property
    def _horizon_s(self) -> float:
        """How far plans look; asked for only where there is not room for all at once."""
        if self._known_horizon_s is None:
            self._known_horizon_s = self.room.rows.horizon_s(self._first)
        return self._known_horizon_s

    @property
    def roomy(self) -> bool:
        """Whether all claims run at once, so that no time profile was needed."""
        return self._together is not None

    @property
    def reach_s(self) -> float:
        """What is planned to start up to then may rest on jobs that must be stopped for it."""
        profile = self.profile()
        return profile.marks[profile.end(self.room.drain_s)]

    def due_width(self, share: Share) -> int:
        """The width planned for now, or so soon that others must be stopped for it already."""
        return max(width for at_s, width in share.steps if at_s <= self.reach_s)

    @property
    def spare_gpus(self) -> int:
        """GPUs that no claim will need, whatever happens; meant for jobs that cannot be stopped."""
        return self._together.left if self._together is not None else 0

    def spare_on(self, region: Region) -> int:
        """The same on a region."""
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
                self.room.in_order([claim], self.profile(claim.deadline_s))
                self._together = None
        elif self._profile is not None:
            self._profile.reserve(share, self.room.planner.gpu_needs(claim.job))
        if share is None:
            return self._replan_orders(claim)
        self.claims.append(claim)
        self.shares.add(claim.job.id, share)
        return share

    def admit_all(
        self, jobs: Sequence[Job], due_s: Floats, widths: "Ints", finish_s: Floats, sizes: "Ints"
    ) -> int:
        """Count the first of these newcomers, each on one width, as long as all run at once."""
        if self._together is None:
            return 0
        count = self._together.count(jobs, widths * sizes)
        jobs = jobs[:count]
        self.claims += construct_many(Claim, jobs, due_s[:count].tolist())
        self.shares.add_widths([job.id for job in jobs], widths[:count], finish_s[:count])
        if self._profile is not None:
            for job in jobs:
                needed_gpus = self.room.planner.gpu_needs(job)
                self._profile.reserve(self.shares[job.id], needed_gpus)
        return count

    def admit_behind(self, jobs: Sequence[Job], plans: Plans, ones: slice, due_s: Floats) -> int:
        """Count the first of these newcomers, which wait, each planned behind all claims.

        Until one is late, or due beyond what the profile shows. How many.
        """
        if self._together is not None or self._profile is None or not len(due_s):
            return 0
        shown = np.where(due_s <= self._horizon_s, due_s, -1.0)
        count = self.room.planner.plan_newcomers(plans, ones, shown, self._profile)
        jobs = jobs[:count]
        self.claims += construct_many(Claim, jobs, due_s[:count].tolist())
        rows = plans.share_rows(np.arange(ones.start, ones.start + count))
        self.shares.add_rows([job.id for job in jobs], rows)
        return count

    def profile(self, horizon_s: float = 0.0) -> Profile:
        """What the claims leave, per slot, at least as far as the horizon. Not to be changed."""
        profile = self._profile
        if profile is None or (self._horizon_s < horizon_s < FOREVER):
            far_s = max(self._horizon_s, horizon_s if horizon_s < FOREVER else 0.0)
            self._known_horizon_s = far_s
            profile = self._profile = self.room.empty_profile(far_s)
            if self._kept is None:
                self._kept = KeptClaims(self.room, self.claims, self.shares)
            self._kept.take_out(profile)
        return profile

    def _keep_all(self, amended: str) -> None:
        together = ConcurrentFit(self.room)
        shares = together.add_all(self.claims, amended=amended)
        if shares is None:
            self._take(self.room.find_best_plan(self.claims, self._horizon_s))
        else:
            self._together, self.shares = together, shares

    def _take(self, kept: Kept) -> None:
        self.shares, self.late, self._profile = kept.shares, kept.late, kept.profile
        self._together = self._kept = None

    def _replan_orders(self, claim: Claim) -> Share | None:
        """Other orders of all claims, in which nobody is late who is in time now."""
        if len(self.claims) > self.terms.replan_claims:
            return None
        claims = [*self.claims, claim]
        horizon_s = max(self._horizon_s, self.room.rows.horizon_s([claim]))
        base = self.room.empty_profile(horizon_s)
        for order in self.room.orders:
            replanned = self.room.in_order(self.room.sort_claims(claims, order), base.copy())
            if self.harms_nobody(replanned):
                self.claims, self._known_horizon_s = claims, horizon_s
                self._take(replanned)
                return replanned.shares[claim.job.id]
        return None

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
