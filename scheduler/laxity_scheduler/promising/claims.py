"""Who has a claim on GPUs, and in which order claims are planned.

A job claims GPUs if it was promised its deadline, or if it has waited so long that it must not
starve (then as soon as there is room, at its least width); soft jobs claim what these leave, once
all verdicts are given (`Reservations.plan_behind`). Everything else that runs can be stopped
at the end of its epoch; only pinned jobs and those that may not be preempted stay in the way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
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
from laxity_scheduler.model.job import FOREVER, Job, Promise

AGEING_S: Final = 600.0  # a job that waited so long ...
MOST_STOPS: Final = 5  # who was stopped so often is not stopped again where that can be helped
AGEING_RUNS: Final = 5.0  # ... and so many of its predicted run times must not wait longer


def deadline_in_force(job: Job) -> float:
    """What was promised; without a promise, what is asked."""
    return job.verdict.deadline_at if isinstance(job.verdict, Promise) else job.deadline_at


def was_stopped_often(job: Job) -> bool:
    """Whether it is to run to its end now: plans put it first, and it starts where nobody needs its place."""
    return job.preemptions >= MOST_STOPS


def holds_promise(job: Job, now: float) -> bool:
    """Whether it holds a promise whose deadline is still ahead."""
    return isinstance(job.verdict, Promise) and now <= job.verdict.deadline_at


def ageing_limits_s(frame: Frame, rows: Ints | slice) -> Floats:
    """How long these jobs may wait before they have waited too long, (n,)."""
    run_s = frame.levels("mean")[rows, TOTAL, 0]
    limits_s: Floats = AGEING_RUNS * np.where(run_s < FOREVER, run_s, 0.0)
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


Keys = Callable[[Frame, Ints, Floats], tuple[Floats, ...]]


class ClaimOrder(NamedTuple):
    """Claims by keys of their rows and deadlines, the first key first; then by id.

    Running jobs come before those that wait, unless the order `makes_way`.
    """

    keys: Keys
    makes_way: bool = False


def _by_plan(frame: Frame, rows: Ints, due_s: Floats) -> tuple[Floats, ...]:
    runs = frame.column(WORKERS)[rows] > 0.0
    return np.where(runs, 0.0, frame.column(PLANNED_AT)[rows]), due_s


def _by_due(frame: Frame, rows: Ints, due_s: Floats) -> tuple[Floats, ...]:
    return (due_s,)


def _by_nodes(frame: Frame, rows: Ints, due_s: Floats) -> tuple[Floats, ...]:
    return np.array([not job.eligible for job in frame.at(rows)], dtype=np.float64), due_s


AS_PLANNED: Final = ClaimOrder(_by_plan)  # in the order in which promises planned to start
IN_TURN: Final = ClaimOrder(_by_due)  # the earliest deadline first, but no running job makes way
BY_DEADLINE: Final = ClaimOrder(_by_due, makes_way=True)
CONFINED_FIRST: Final = ClaimOrder(_by_nodes)  # who may use some nodes only before all others
ORDERS: Final = (AS_PLANNED, IN_TURN, BY_DEADLINE)
