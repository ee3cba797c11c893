"""Plans claims on a profile: thousands in one call, or one job of which somebody asks what if."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import Loop, compile_loop
from laxity_scheduler.frame.curve import Curve
from laxity_scheduler.frame.fields import NOBODY, OWN, WIDTH
from laxity_scheduler.frame.frame import row_of
from laxity_scheduler.frame.loops import work_of
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job, WorkerShape
from laxity_scheduler.promising import planning
from laxity_scheduler.promising.claimants import (
    BOUNDED,
    FREE,
    IN_TIME,
    NONE,
    Claimant,
    Claimants,
    Full,
    Held,
    How,
    find_its_seats,
    nothing_known,
    room_for,
)
from laxity_scheduler.promising.claims import Claims
from laxity_scheduler.promising.regions import Region, weigh
from laxity_scheduler.promising.reserve import (
    Claim,
    Profile,
    Share,
    ShareColumns,
    ShareTable,
    add_gpus,
)
from laxity_scheduler.promising.whole_workers import WholeWorkers, weigh_whole

PlanOne = Callable[[Claimant, float, How, Profile, Full, Floats, Ints], tuple[int, float]]
Kind = tuple[int, WorkerShape, str, str]  # a curve, by identity; a worker, nodes, quota


class Plans:
    """Shares of these claims, as far as they are planned."""

    def __init__(self, planner: "Planner", claims: Claims) -> None:
        self.claims = claims
        frame, places = planner.forecasts.frame, claims.rows
        self._widths = widths = frame.levels("p90")[places, WIDTH]
        weighs = planner.weigh(claims.jobs, widths)
        rows, levels = frame.tables_of(places, "p90")
        self.claimants = Claimants(rows, levels, *weighs)
        self.shares = room_for(len(places), widths.shape[1], weighs[0].shape[1])
        self.full = nothing_known(widths.shape[1])

    def share_rows(self, places: Ints | slice) -> ShareColumns:
        """Those of these claims, with workers in place of levels."""
        of = self.shares.of(places)
        there = (np.arange(of.level.shape[1]) < of.many[:, None]) & (of.level != NOBODY)
        rows = np.arange(len(there))[:, None]
        widths = self._widths[places][rows, np.where(there, of.level, 0)]
        workers = np.where(there, widths, 0.0).astype(np.int64)
        return ShareColumns(of.from_s, workers, of.finish_s, of.seats)

    def keep(self) -> tuple[ShareTable, frozenset[str]]:
        """The shares of all claims that have one, and who is late."""
        names, outcomes, table = self.claims.names, self.shares.found, ShareTable()
        some, late = np.flatnonzero(outcomes != NONE), np.flatnonzero(outcomes != IN_TIME)
        table.add_rows([names[place] for place in some.tolist()], self.share_rows(some))
        return table, frozenset([names[place] for place in late.tolist()])


@dataclass(frozen=True)
class Planner:
    """Finds shares on profiles of these regions; `grows`: running jobs can have more workers."""

    forecasts: Forecasts
    regions: tuple[Region, ...]
    grows: bool
    claimed_gpus: Callable[[Job], float] | None = None  # per worker; None: those that it has
    whole: tuple[WholeWorkers, ...] = ()  # kinds of workers that have a part of the profile
    _waiting: dict[Kind, tuple[Curve, Claimant]] = field(default_factory=dict, repr=False)

    def plan_all(
        self,
        claims: Claims,
        held: Held,
        profile: Profile,
        *,
        stay: bool = False,
        drops: bool = False,
    ) -> Plans:
        """Plan all claims, one after the other, and take their shares out of the profile.

        `stay`: a running job keeps its width if it is in time with it. `drops`: who would be late takes none.
        """
        plans, how = Plans(self, claims), self._how(stay=stay, drops=drops)
        places, plan = np.arange(len(claims.rows)), self._run(planning.plan_claims)
        due_s, shares = claims.deadline_s, plans.shares
        plan(plans.claimants, places, due_s, held, how, profile, plans.full, shares)
        return plans

    def plan_newcomers(self, plans: Plans, first: int, due_s: Floats, profile: Profile) -> int:
        """Plan these, which wait, one after the other to the first that is late; how many."""
        end = first + len(due_s)
        how, shares = self._how(stay=False), plans.shares.of(slice(first, end))
        plan, places = self._run(planning.plan_newcomers), np.arange(first, end)
        made: int = plan(plans.claimants, places, due_s, how, profile, plans.full, shares)
        return made

    def least(self, claim: Claim, profile: Profile) -> Share | None:
        """The share of the smallest width in time, or None."""
        return self._share(claim.job, planning.plan_least, claim.deadline_s, profile)

    def earliest(self, job: Job, profile: Profile) -> Share | None:
        """The share that ends soonest, or None if there is never room."""
        return self._share(job, planning.plan_earliest, FOREVER, profile)

    def release(self, job: Job, free_s: float, profile: Profile) -> None:
        """What a running job holds until then is free for it."""
        add_gpus(profile, 0.0, free_s, self.claimant(job).needs[:, OWN])

    def gpu_needs(self, job: Job) -> Callable[[int], Floats]:
        """GPUs of each part that so many of its workers need."""

        def needs(workers: int) -> Floats:
            widths = np.array([[workers]], float)
            return self.weigh([job], widths)[0][0, :, 0]

        return needs

    def _share(self, job: Job, plan: PlanOne, due_s: float, profile: Profile) -> Share | None:
        claimant, how = self.claimant(job), self._how(stay=False)
        depth = claimant.needs.shape[1]
        from_s, level = np.zeros(depth), np.zeros(depth, dtype=np.int64)
        full = nothing_known(depth)
        count, finish_s = self._run(plan)(claimant, due_s, how, profile, full, from_s, level)
        widths = [
            0 if column == NOBODY else int(claimant.levels[WIDTH][column])
            for column in level[:count].tolist()
        ]
        steps = tuple(zip(from_s[:count].tolist(), widths, strict=True))
        if not count:
            return None
        seats = np.zeros(len(profile.parts))
        if self.regions:
            seat = self._run(find_its_seats)
            seat(claimant, profile, from_s, level, count, finish_s, seats)
        return Share(steps, float(finish_s), tuple(seats.tolist()))

    def claimant(self, job: Job) -> Claimant:
        """A job that may be in no snapshot. Waiting ones of one curve and kind are alike here."""
        curve = self.forecasts.curve(job)
        if job.workers or any(job.id in region.awaited for region in self.regions):
            return self._read(job, curve)
        kind = id(curve), job.shape, job.eligible, job.quota
        if kind not in self._waiting:
            self._waiting[kind] = curve, self._read(job, curve)
        return self._waiting[kind][1]

    def _read(self, job: Job, curve: Curve) -> Claimant:
        row, levels = row_of(job, curve)
        needs, bound = self.weigh([job], levels[WIDTH][None])
        rows, depths = (row, levels) if self._many else (row.tolist(), levels.tolist())
        return Claimant(rows, depths, work_of(rows, depths), needs[0], bound[0])

    def weigh(self, jobs: Sequence[Job], widths: Floats) -> tuple[Floats, Ints]:
        """What n jobs need of each part on K widths, (n, P, K), and which parts bound them, (n, P)."""
        needs, bound = weigh(self.regions, jobs, widths, self.sizes_of(jobs))
        if not self.whole and self.claimed_gpus is None:
            return needs, bound
        mine = weigh_whole(self.whole, jobs)
        if self.claimed_gpus is not None:
            mine = np.append(mine, np.ones((len(jobs), 1), dtype=np.bool_), axis=1)
        sizes = np.array([job.gpus_per_worker for job in jobs], dtype=float)
        gpus = np.where(mine[:, :, None], (widths * sizes[:, None])[:, None, :], 0.0)
        return np.concatenate([needs, gpus], axis=1), np.concatenate(
            [bound, np.where(mine, BOUNDED, FREE)], axis=1
        )

    def sizes_of(self, jobs: Sequence[Job]) -> Floats:
        """GPUs that a worker of each keeps from others."""
        if self.claimed_gpus is None:
            return np.array([job.gpus_per_worker for job in jobs], dtype=float)
        return np.array(list(map(self.claimed_gpus, jobs)), dtype=float)

    def _how(self, *, stay: bool, drops: bool = False) -> How:
        return How(self.forecasts.now, self.grows, stay, drops)

    @property
    def _many(self) -> bool:
        return self.forecasts.frame.many

    def _run(self, loop: Loop) -> Loop:
        return compile_loop(loop) if self._many else loop
