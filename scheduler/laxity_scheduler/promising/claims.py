"""Who has a claim on GPUs, and in which order claims are planned.

A job claims GPUs if it was promised its deadline, or if it has waited so long that it must not
starve (then as soon as there is room, at its least width); soft jobs claim what these leave, once
all verdicts are given (`Reservations.plan_behind`). Everything else that runs can be stopped
at the end of its epoch; only pinned jobs and those that may not be preempted stay in the way.

What is asked of all rows for them: who is in the way, how far plans look, the order (`ClaimRows`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame import fields
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.frame.fields import (
    DUE_AT,
    HARD,
    PLANNED_AT,
    QUEUED_AT,
    SERVICE,
    TOTAL,
    WAITING,
    WANTS,
    WORKERS,
)
from laxity_scheduler.frame.frame import Frame
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job, Promise

AGEING_S: Final = 600.0  # a job that waited so long ...
MOST_STOPS: Final = 8  # who was stopped so often is not stopped again where that can be helped
AGEING_RUNS: Final = 5.0  # ... and so many of its predicted run times must not wait longer
Keys = Callable[[Frame, Ints, Floats], tuple[Floats, ...]]


def deadline_in_force(job: Job) -> float:
    """What was promised; without a promise, what is asked."""
    return job.verdict.deadline_at if isinstance(job.verdict, Promise) else job.deadline_at


def was_stopped_often(job: Job) -> bool:
    """Whether it is to run to its end now: plans put it first, and it starts where nobody needs its place."""
    return job.preemptions >= MOST_STOPS


def hold_s(forecasts: Forecasts, job: Job, workers: int) -> float:
    """How long (P90) a job without a claim keeps its GPUs from others, if it starts on so many workers."""
    curve = forecasts.curve(job)
    if not job.preemptible or was_stopped_often(job):
        return forecasts.rest_s(job, workers)
    held_s = curve.start_s(workers, "p90") + curve.epoch_s(workers, "p90")
    held_s += curve.stop_s(workers, "p90")
    return held_s if held_s < FOREVER else AGEING_S


def holds_promise(job: Job, now: float) -> bool:
    """Whether it holds a promise whose deadline is still ahead."""
    return isinstance(job.verdict, Promise) and now <= job.verdict.deadline_at


def ageing_limits_s(frame: Frame, rows: Ints | slice) -> Floats:
    """How long these jobs may wait before they have waited too long, (n,)."""
    run_s = frame.levels("mean")[rows, TOTAL, 0]
    if frame.predictability == 1.0:
        return np.full(len(run_s), FOREVER)
    runs = AGEING_RUNS / (1.0 - frame.predictability)
    limits_s: Floats = runs * np.where(run_s < FOREVER, run_s, 0.0)
    return np.maximum(AGEING_S, limits_s)


def want_promise(frame: Frame) -> Bools:
    """Hard jobs whose deadline is ahead and that have no verdict on it yet, (n,)."""
    wants: Bools = (frame.column(SERVICE) == HARD) & (frame.column(DUE_AT) < FOREVER)
    return wants & (frame.column(WANTS) > 0.0) & ~frame.promised


def find_aged_jobs(frame: Frame) -> list[Job]:
    """Waiting jobs that no promise covers and that have waited too long."""
    aged = frame.now - frame.column(QUEUED_AT) >= ageing_limits_s(frame, slice(None))
    aged &= (frame.column(WAITING) > 0.0) & ~frame.promised & ~want_promise(frame)
    return [job for job in frame.where(aged) if not job.refused]


@dataclass(frozen=True, slots=True)
class Claims:
    """n claims (`reserve.Claim`) as columns: whose, which rows of the snapshot these are, until when."""

    jobs: Sequence[Job]
    rows: Ints  # (n,)
    deadline_s: Floats  # (n,): from now

    @property
    def names(self) -> list[str]:
        return [job.id for job in self.jobs]

    def at(self, places: Ints | slice) -> "Claims":
        if isinstance(places, slice):
            jobs = self.jobs[places]
        else:
            jobs = [self.jobs[place] for place in places.tolist()]
        return Claims(jobs, self.rows[places], self.deadline_s[places])

    def __add__(self, other: "Claims") -> "Claims":
        rows, deadline_s = (self.rows, other.rows), (self.deadline_s, other.deadline_s)
        jobs = [*self.jobs, *other.jobs]
        return Claims(jobs, np.concatenate(rows), np.concatenate(deadline_s))


def claims_of(frame: Frame, jobs: Sequence[Job], deadline_s: Sequence[float] | Floats) -> Claims:
    """Those of jobs of a snapshot."""
    return Claims(jobs, frame.row_numbers(jobs), np.array(deadline_s, dtype=np.float64))


class ClaimOrder(NamedTuple):
    """Claims by keys of their rows and deadlines, the first key first; then by id.

    Running jobs come before those that wait, unless the order `makes_way`.
    """

    keys: Keys
    makes_way: bool = False


def _by_plan(frame: Frame, rows: Ints, due_s: Floats) -> tuple[Floats, ...]:
    """When each was planned to start; one whose start has failed behind all that are due before it."""
    runs = frame.column(WORKERS)[rows] > 0.0
    planned_at = np.where(runs, 0.0, frame.column(PLANNED_AT)[rows])
    stands = planned_at < FOREVER
    for place in np.flatnonzero(~stands).tolist():
        sooner = stands & (due_s <= due_s[place])
        planned_at[place] = planned_at[sooner].max(initial=0.0)
    return planned_at, due_s


def _by_due(frame: Frame, rows: Ints, due_s: Floats) -> tuple[Floats, ...]:
    return (due_s,)


def _by_nodes(frame: Frame, rows: Ints, due_s: Floats) -> tuple[Floats, ...]:
    return np.array([not job.eligible for job in frame.at(rows)], dtype=np.float64), due_s


AS_PLANNED: Final = ClaimOrder(_by_plan)  # in the order in which promises planned to start
IN_TURN: Final = ClaimOrder(_by_due)  # the earliest deadline first, but no running job makes way
BY_DEADLINE: Final = ClaimOrder(_by_due, makes_way=True)
CONFINED_FIRST: Final = ClaimOrder(_by_nodes)  # who may use some nodes only before all others
ORDERS: Final = (AS_PLANNED, IN_TURN, BY_DEADLINE)


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
        mine = self.runs & may_stop & (wider | ~self._claimed)
        last_s = self._times_s[2][mine].max(initial=0.0)
        return max(float(last_s), float(self.ended_s[self._ends].max(initial=0.0)))

    @cached_property
    def freed_again_s(self) -> Floats:
        """When running jobs without a claim free their GPUs if they are asked in their next epoch, (n,).

        In seconds from now at P90; 0 of all others.
        """
        of, table = self._frame.column, self._frame.levels("p90")
        rows = np.arange(len(self._frame.jobs))
        width = np.where(of(fields.FORMED_AT) > 0.0, of(fields.FORMED_AT), of(fields.WORKERS))
        total_s = table[rows, fields.TOTAL, self._frame.levels_of(rows, width)]
        may_stop = (of(fields.PINNED) == 0.0) & (of(fields.STAYS) == 0.0) & self.runs
        epoch_s = total_s / np.maximum(of(fields.LEFT), 1.0)
        return np.where(may_stop & ~self._claimed, self._times_s[2] + epoch_s, 0.0)

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

    @cached_property
    def leaves_s(self) -> Floats:
        """When running jobs can have left their nodes: who may not be stopped at its end, (n,)."""
        stays = self._frame.column(fields.STAYS) > 0.0
        return np.where(stays, self.holds_s, self.until_s)

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

    @cached_property
    def lost(self) -> Bools:
        """Of all rows: claims that no width can keep any more (P50), not even at once, (n,).

        They are planned behind all others. Who runs and cannot make way is not among them.
        """
        frame, lost = self._frame, np.zeros(len(self.runs), dtype=np.bool_)
        of, claims = frame.column, self._claims
        troubled = (of(fields.TROUBLED) > 0.0) & ~(self.runs & (of(fields.STAYS) > 0.0))
        claims = claims.at(np.flatnonzero(troubled[claims.rows] & (claims.deadline_s < FOREVER)))
        if not claims.jobs:
            return lost
        least_s = frame.by_level_s(claims.rows, "p50").min(axis=1, initial=FOREVER)
        lost[claims.rows] = (least_s < FOREVER) & (least_s > claims.deadline_s + TINY_S)
        return lost

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
        first[self.lost[rows]] = 3.0
        return claims.at(np.lexsort((self._frame.ranks[rows], *reversed(keys), ready_s, first)))
