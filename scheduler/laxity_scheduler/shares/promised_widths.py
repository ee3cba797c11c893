"""What promised jobs need now where widths change at the ends of epochs, for policies that promise nothing.

Such a policy gives each promised job its floor, and everybody else only what `fits` beside the plans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from laxity_profiler.estimate import Floats, Predictor
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.shares.rows import (
    Columns,
    count_gpus,
    find_movable,
    levels_held,
    open_rows,
)

if TYPE_CHECKING:
    from laxity_scheduler.shares.epoch_end_plans import EpochEndPlans, EpochTimes

FOLLOW_S = 60.0  # who waits for GPUs of others is looked at again


@dataclass(frozen=True, slots=True)
class PromiseFloors:
    """Floors of promised jobs in order of deadline, and when to look again.

    `late` says when those will have ended that cannot be in time; `rows` are places in the plans.
    """

    floors: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)
    wake_at: float = FOREVER
    rows: Mapping[str, int] = field(default_factory=dict)
    plans: "EpochEndPlans | None" = None

    def fits(self, job: Job, workers: int) -> bool:
        """Whether no plan needs its GPUs before the epoch that it would train so wide ends."""
        if self.plans is None or job.id not in self.rows:
            return True
        return self.plans.fits(self.rows[job.id], job.widths.index(workers))

    def take(self, job: Job, workers: int) -> None:
        """Let the job be so wide: those who come later must fit beside it."""
        if self.plans is not None and job.id in self.rows:
            self.plans.take(self.rows[job.id], job.widths.index(workers))


NO_PROMISES = PromiseFloors()


def plan_promises(state: ClusterState, predictor: Predictor) -> PromiseFloors:
    """What promised jobs need now, and what else may run beside their plans.

    By no rule's plans: whoever gave the promises, they are planned the same way.
    """
    jobs = find_movable(state)
    if not any(isinstance(job.verdict, Promise) for job in jobs):
        return NO_PROMISES
    columns = open_rows(state, predictor).columns(jobs, state.now)
    gpus = count_gpus(state, jobs, Ledger.of(state).total_free)
    return plan_promised_widths(jobs, columns, levels_held(jobs), gpus, state.now)


def plan_promised_widths(
    jobs: Sequence[Job], columns: Columns, held: Ints, gpus: float, now: float
) -> PromiseFloors:
    """Plans in order of deadline; `held` (n,) are the levels of the GPUs that each job holds."""
    from laxity_scheduler.shares.epoch_end_plans import EpochEndPlans
    from laxity_scheduler.shares.share_loop import least_levels

    table = columns._replace(due=np.where(columns.promised, columns.due, FOREVER))
    least = least_levels(table)
    plans = EpochEndPlans(table, _read_times(jobs, columns, held), gpus, least)
    promised = np.flatnonzero(columns.promised)
    levels: dict[int, int] = {}
    late: dict[str, float] = {}
    for row in promised[np.argsort(columns.due[promised], kind="stable")].tolist():
        level = plans.reserve(row, int(least[row])) if least[row] >= 0 else None
        if level is None:
            level, end_s = plans.reserve_late(row)
            late[jobs[row].id] = now + end_s
        levels[row] = level
    waits = any(level < 0 or level > held[row] for row, level in levels.items())
    return PromiseFloors(
        {jobs[row].id: jobs[row].widths[level] for row, level in levels.items() if level >= 0},
        late,
        now + FOLLOW_S if waits else FOREVER,
        {job.id: row for row, job in enumerate(jobs)},
        plans,
    )


def _read_times(jobs: Sequence[Job], columns: Columns, held: Ints) -> "EpochTimes":
    from laxity_scheduler.shares.epoch_end_plans import EpochTimes

    rows, at = np.arange(len(jobs)), np.maximum(held, 0)
    epochs = [max(1, job.workload.epochs - job.progress.epochs_done) for job in jobs]
    epoch_s: Floats = columns.total / np.array(epochs)[:, None]
    freed_s = np.where(held >= 0, columns.freed, 0.0)
    ends_s = np.maximum(0.0, freed_s - np.where(held >= 0, columns.saves[rows, at], 0.0))
    trains_s = np.maximum(0.0, ends_s - columns.pause)
    level = np.maximum(columns.level, 0)
    total_s = columns.total[rows, level]
    known = (columns.level >= 0) & np.isfinite(total_s)
    done = np.where(known, trains_s, 0.0) / np.where(known, total_s, 1.0)
    left = np.maximum(0.0, columns.left - done)
    return EpochTimes(held, ends_s, freed_s, epoch_s, columns.saves, left)
