"""False refusals (algorithms.md 8): refused jobs that the run itself shows would be in time.

The run is replayed with what really happened, not with what was believed. A refused job counts if

- it ran on without a promise and ended in time, or
- it went away, and within its window at one of its widths so many GPUs were idle for so long that
  its start and all its work fit, while all others do exactly what they did.

Each is looked at alone, so two may count on the same idle GPUs; nobody is moved and no width is
changed for it, so an oracle that replans might find more. GPUs are counted in one pool, of the size
that the cluster has when no node is lost.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from laxity_lab.simulate.run import Setting, truths_of
from laxity_lab.traces.traces import Trace
from laxity_lab.world.outcome import Run
from laxity_profiler.estimate import Floats
from laxity_scheduler.simulated.change_costs import Costs
from laxity_scheduler.simulated.ground_truth import GroundTruth


def false_refusals(run: Run, trace: Trace, setting: Setting) -> int:
    """How many of the refused jobs with a deadline would have been in time."""
    if not run.refused:
        return 0
    return sum(wrongly_refused(run, truths_of(trace, setting), setting.costs))


def wrongly_refused(run: Run, jobs: Sequence[GroundTruth], costs: Costs) -> list[bool]:
    """For each refused job, in order of number, whether it would have been in time."""
    instants = np.array([-np.inf, *(busy_at for busy_at, _ in run.busy), np.inf])
    idle = run.gpus - np.array([0, *(held for _, held in run.busy)], dtype=np.float64)
    finished_at = run.column("finished_at")
    return [
        bool(finished_at[number] <= jobs[number].deadline_at)
        if np.isfinite(finished_at[number])
        else _fits(jobs[number], costs, instants, idle)
        for number in sorted(run.refused)
        if np.isfinite(jobs[number].deadline_at)
    ]


def _fits(job: GroundTruth, costs: Costs, at: Floats, idle: Floats) -> bool:
    """`idle` GPUs from at[i] to at[i + 1]: whether the job fits into one stretch of its window."""
    first = max(0, int(np.searchsorted(at, job.submitted_at, side="right")) - 1)
    last = int(np.searchsorted(at, job.deadline_at, side="left"))
    marks = np.clip(at[first : last + 1], job.submitted_at, job.deadline_at)
    for width in job.widths:
        gpus = width * job.gpus_per_worker
        needs_s = costs.start_s(gpus) + job.epochs * job.epoch_s[width]
        if longest_s(idle[first:last] >= gpus, marks) >= needs_s:
            return True
    return False


def longest_s(free: NDArray[np.bool_], marks: Floats) -> float:
    """The longest stretch of free intervals; `free` has shape (n,), `marks` (n + 1,)."""
    edges = np.diff(np.concatenate([[False], free, [False]]).astype(np.int64))
    begins, ends = marks[np.flatnonzero(edges == 1)], marks[np.flatnonzero(edges == -1)]
    return float((ends - begins).max(initial=0.0))
