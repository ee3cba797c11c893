"""Hundreds of claims planned on one profile at once: what `room` and `reserve` do claim by claim.

The same shares and the same free GPUs, from columns (`frame`) and compiled loops (`planning`).
"""

from collections.abc import Sequence

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.curve import Curve
from laxity_scheduler.frame.fields import NOBODY, WIDTH
from laxity_scheduler.frame.frame import Frame, row_of
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising import planning
from laxity_scheduler.promising.lazy_shares import LazyShares, Outline
from laxity_scheduler.promising.planning import IN_TIME, NONE
from laxity_scheduler.promising.reserve import Claim, Planner, Profile, Share


class Plans:
    """Shares as the loops make them, of the claims on these rows; the first so many are made."""

    def __init__(self, frame: Frame, rows: Ints) -> None:
        self.frame, self.rows, self.many = frame, rows, 0
        self.shares = planning.room_for(len(rows), frame.levels("p90").shape[2])
        self._outline: tuple[int, Outline, Ints] | None = None

    def slots(self, ones: slice) -> planning.Shares:
        """Where the shares of these go."""
        return self.shares.of(ones)

    def _known(self) -> tuple[Outline, Ints]:
        """What is said of those that are made, and their workers by step."""
        known = self._outline
        if known is None or known[0] != self.many:
            shares = self.shares.of(slice(self.many))
            steps = np.arange(shares.level.shape[1])
            there = (steps < shares.many[:, None]) & (shares.level != NOBODY)
            level = np.where(there, shares.level, 0)
            of = self.frame.levels("p90")[self.rows[: self.many, None], WIDTH, level]
            widths = np.where(there, of, 0.0).astype(np.int64)
            among, first = np.arange(self.many), there.argmax(axis=1)
            some = there.any(axis=1)
            outline = Outline(
                np.where(some, shares.from_s[among, first], FOREVER),
                widths[among, first],
                widths[:, 0],
                widths.max(axis=1, initial=0),
                shares.finish_s,
                widths[:, 0],
            )
            known = self._outline = self.many, outline, widths
        return known[1], known[2]

    def outline(self, due_s: float) -> Outline:
        known, widths = self._known()
        if due_s:
            soon = self.shares.from_s[: self.many] <= due_s
            return known._replace(due_width=np.where(soon, widths, 0).max(axis=1, initial=0))
        return known

    def share(self, place: int) -> Share:
        many, shares = int(self.shares.many[place]), self.shares
        widths = self._known()[1][place, :many].tolist()
        steps = zip(shares.from_s[place, :many].tolist(), widths, strict=True)
        return Share(tuple(steps), float(shares.finish_s[place]))


class CompiledPlanner(Planner):
    """Finds the same shares, in compiled loops."""

    def __init__(self, forecasts: Forecasts, *, grows: bool) -> None:
        super().__init__(forecasts, grows=grows)
        self._how = planning.How(forecasts.now, grows, stay=False, settle_epochs=0.0)
        self._queued: dict[tuple[int, int], tuple[Curve, Floats, Floats]] = {}

    def least(self, claim: Claim, profile: Profile) -> Share | None:
        """The smallest width in time, or None."""
        row, levels = self._lane(claim.job)
        from_s, level = np.zeros(levels.shape[1]), np.zeros(levels.shape[1], dtype=np.int64)
        found = planning.least(
            row, levels, claim.deadline_s, self._how, free_of(profile), from_s, level
        )
        return self._share(levels, from_s, level, found)

    def earliest(self, job: Job, profile: Profile) -> Share | None:
        """The share that ends soonest, or None if there is never room."""
        row, levels = self._lane(job)
        from_s, level = np.zeros(levels.shape[1]), np.zeros(levels.shape[1], dtype=np.int64)
        found = planning.earliest(row, levels, self._how, free_of(profile), from_s, level)
        return self._share(levels, from_s, level, found)

    def _share(
        self, levels: Floats, from_s: Floats, level: Ints, found: tuple[int, float]
    ) -> Share | None:
        many, finish_s = found
        widths = [0 if at == NOBODY else int(levels[WIDTH, at]) for at in level[:many].tolist()]
        steps = tuple(zip(from_s[:many].tolist(), widths, strict=True))
        return Share(steps, finish_s) if many else None

    def _lane(self, job: Job) -> tuple[Floats, Floats]:
        """Queued jobs of one curve and size are alike here."""
        curve = self.forecasts.curve(job)
        if job.workers:
            return row_of(job, curve)
        known = self._queued.get((id(curve), job.gpus_per_worker))
        if known is None:
            known = self._queued[id(curve), job.gpus_per_worker] = curve, *row_of(job, curve)
        return known[1], known[2]


def free_of(profile: Profile) -> planning.Free:
    return planning.Free(profile.edges, profile.free)


def plan_claims(
    frame: Frame, claims: Sequence[Claim], rules: planning.How, profile: Profile
) -> tuple[LazyShares, frozenset[str]]:
    """Shares of all claims, and who is late with them. They are taken out of the profile."""
    rows = frame.known_rows([claim.job for claim in claims])
    due_s, plans = np.array([claim.deadline_s for claim in claims]), Plans(frame, rows)
    levels = frame.levels("p90")
    planning.plan_all(frame.table, levels, rows, due_s, rules, free_of(profile), plans.shares)
    plans.many = len(rows)
    names, found = [claim.job.id for claim in claims], plans.shares.found
    shares = LazyShares()
    shares.plan(names, plans)
    for place in np.flatnonzero(found == NONE).tolist():
        del shares.planned[names[place]]
    return shares, frozenset([names[place] for place in np.flatnonzero(found != IN_TIME).tolist()])


def admit_all(
    plans: Plans, ones: slice, due_s: Floats, rules: planning.How, profile: Profile
) -> int:
    """Plan these newcomers, which wait, one after the other to the first that is late; how many."""
    frame, rows = plans.frame, plans.rows[ones]
    levels, shares = frame.levels("p90"), plans.slots(ones)
    many = planning.admit_all(frame.table, levels, rows, due_s, rules, free_of(profile), shares)
    plans.many = ones.start + many
    return many
