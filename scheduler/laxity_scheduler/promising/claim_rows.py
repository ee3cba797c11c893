"""Who is in the way of claims, how far plans look, in which order claims are planned: asked of all rows."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame import fields
from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.frame.frame import Frame
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.promising.claims import ClaimOrder, Claims, was_stopped_often


class ClaimRows:
    """The rows of a snapshot at its instant, some of which have a claim."""

    def __init__(self, frame: Frame, claims: Claims) -> None:
        self._frame, self._claims = frame, claims
        self.runs: Bools = frame.column(fields.WORKERS) > 0.0
        self._ends: Bools = frame.column(fields.TERMINATING) > 0.0
        self.ended_s = frame.levels("p90")[:, fields.STOP, 0]  # when terminating pods are gone

    @cached_property
    def _claimed(self) -> Bools:
        claimed = np.zeros(len(self.runs), dtype=np.bool_)
        claimed[self._claims.rows] = True
        return claimed

    @cached_property
    def _times_s(self) -> tuple[Floats, Floats, Floats]:
        return self._frame.times_s("p90")

    @cached_property
    def drain_s(self) -> float:
        """When the last GPU that can be made free is free, in seconds from now."""
        of = self._frame.column
        may_stop = (of(fields.PINNED) == 0.0) & (of(fields.STAYS) == 0.0)
        wider = of(fields.WORKERS) > self._frame.levels("p90")[:, fields.WIDTH, 0]
        mine = self.runs & np.where(self._claimed, wider, may_stop)
        last_s = self._times_s[2][mine].max(initial=0.0)
        return max(float(last_s), float(self.ended_s[self._ends].max(initial=0.0)))

    @cached_property
    def until_s(self) -> Floats:
        """Until when running jobs hold their GPUs if all claims were dropped, (n,)."""
        of = self._frame.column
        pinned = of(fields.PINNED) > 0.0
        stays = pinned | ((of(fields.STAYS) > 0.0) & ~self._claimed)
        ends_s, _, freed_s = self._times_s
        return np.where(stays, np.where(pinned, FOREVER, ends_s), freed_s)

    @cached_property
    def holds_s(self) -> Floats:
        """Until when running jobs hold their GPUs if claims are kept as they run, (n,)."""
        return np.where(self._claimed, self._times_s[0], self.until_s)

    def busy(self) -> tuple[Floats, Floats]:
        """Until when how many GPUs are busy if all claims were dropped."""
        of, runs, ends = self._frame.column, self.runs, self._ends
        size = of(fields.SIZE)
        gpus = (of(fields.WORKERS) * size)[runs], (of(fields.TERMINATING) * size)[ends]
        return np.concatenate([self.until_s[runs], self.ended_s[ends]]), np.concatenate(gpus)

    def first_to_end(self, many: int, among: frozenset[str] | None = None) -> tuple[str, ...]:
        """The running jobs whose epochs end soonest; of those on these nodes."""
        rows, jobs = np.flatnonzero(self.runs), self._frame.jobs
        if among is not None:
            rows = rows[[not among.isdisjoint(jobs[row].nodes) for row in rows.tolist()]]
        order = np.lexsort((self._frame.ranks[rows], self._times_s[1][rows]))[:many]
        return tuple([jobs[row].id for row in rows[order].tolist()])

    @cached_property
    def frees_s(self) -> Floats:
        """When (mean) the GPUs of running jobs are free, (n,)."""
        ends_s, _, freed_s = self._frame.times_s("mean")
        return np.where(self._frame.column(fields.STOPPING) > 0.0, freed_s, ends_s)

    def horizon_s(self, claims: Claims) -> float:
        """How far plans of these claims look, in seconds from now."""
        due_s, ends_s = claims.deadline_s, self._times_s[0][claims.rows]
        last_s = max(due_s[due_s < FOREVER].max(initial=1.0), 1.0)
        return float(max(last_s, (2.0 * ends_s[ends_s < FOREVER]).max(initial=0.0)))

    def sort_claims(
        self, claims: Claims, order: ClaimOrder, awaited: Mapping[str, float]
    ) -> Claims:
        """What is not to be stopped first; running before awaited before waiting jobs, unless by EDF.

        By EDF a running job may have to make way, but nobody comes before an awaited job. In how many
        seconds GPUs are free for these is said in `awaited`.
        """
        of, rows = self._frame.column, claims.rows
        keys = order.keys(self._frame, rows, claims.deadline_s)
        goes_on = self.runs[rows] & (of(fields.STOPPING)[rows] == 0.0)
        often = np.array([was_stopped_often(job) for job in claims.jobs], dtype=np.bool_)
        stays = (of(fields.STAYS)[rows] > 0.0) | often
        moves = 2.0 if order.makes_way else 1.0
        first = np.where(goes_on, np.where(stays, 0.0, moves), 2.0)
        ready_s = np.zeros(len(rows))
        if awaited:
            for place, name in enumerate(claims.names):
                if name in awaited and not goes_on[place]:
                    first[place], ready_s[place] = 1.0, awaited[name]
        return claims.at(np.lexsort((self._frame.ranks[rows], *reversed(keys), ready_s, first)))
