"""Who has a claim on GPUs, and in which order claims are planned.

A job claims GPUs if it was promised its deadline, or if it has waited so long that it must not
starve (then as soon as there is room, at its least width). Everything else that runs can be stopped
at the end of its epoch; only pinned jobs and those that may not be preempted stay in the way.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import PLANNED_AT, QUEUED_AT, WAITING, WORKERS
from laxity_scheduler.frame.frame import Frame
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.verdict import Promise


@dataclass(frozen=True, slots=True)
class Terms:
    """What promises are made on; durations in seconds."""

    ageing_s: float = 600.0  # a job that waited so long ...
    ageing_runs: float = 5.0  # ... and so many of its predicted run times must not wait longer
    offer_margin: float = 0.05  # an offered deadline is later than it need be by this share ...
    offer_margin_s: float = 60.0  # ... and at least so much: there is time to read and accept it
    settle_epochs: float = 2.0  # so long plans leave a resized job its width, if that is in time
    replan_claims: int = 200  # above so many claims, a newcomer is planned behind them only
    grow_anywhere: bool = False  # new workers may start on nodes the job is not on


def deadline_in_force(job: Job) -> float:
    """What was promised; without a promise, what is asked."""
    return job.verdict.deadline_at if isinstance(job.verdict, Promise) else job.deadline_at


def holds_promise(job: Job, now: float) -> bool:
    """Whether it holds a promise whose deadline is still ahead."""
    return isinstance(job.verdict, Promise) and now <= job.verdict.deadline_at


def ageing_limit_s(job: Job, forecasts: Forecasts, terms: Terms) -> float:
    curve = forecasts.curve(job)
    run_s = curve.total_s(curve.least, "mean")
    return max(terms.ageing_s, terms.ageing_runs * run_s) if run_s < FOREVER else terms.ageing_s


def waits(job: Job) -> bool:
    """Suspended, all pods gone, not refused, not pinned: it may be started."""
    return not (job.workers or job.terminating_workers or job.refused or job.pinned)


def find_aged_jobs(
    state: ClusterState, forecasts: Forecasts, terms: Terms, without: str
) -> Iterable[Job]:
    """Waiting jobs that no promise covers and that have waited longer than their limit."""
    frame = forecasts.frame
    long = state.now - frame.column(QUEUED_AT) >= terms.ageing_s
    for job in frame.where((frame.column(WAITING) > 0.0) & long):
        if (
            waits(job)
            and job.id != without
            and not holds_promise(job, state.now)
            and not wants_promise(job, state.now)
            and state.now - job.queued_at >= ageing_limit_s(job, forecasts, terms)
        ):
            yield job


def wants_promise(job: Job, now: float) -> bool:
    """A hard job whose deadline is ahead and that has no verdict on it yet."""
    return (
        job.service_class == "hard"
        and job.deadline_at < FOREVER
        and (job.asked or job.verdict is None)
        and not holds_promise(job, now)
    )


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
