"""An upper bound on the share of deadlines that any schedule can meet, counting contention.

A linear program. Time is cut into bins; x_jl(b) is the time that job j spends in bin b on level l of
its throughput table. Let r_l be the share of the job that a second on level l does, g_l its GPUs,
and W_j the time from submission to deadline.

    maximise  sum_j y_j                     y_j in [0, 1]: the share of job j that counts as in time
    subject   sum_bl r_l x_jl(b) >= y_j                              its work is done in its window
              sum_l x_jl(b)      <= y_j |b cut with j's window|      one level at a time
              sum_jl g_l x_jl(b) <= G |b|                            GPUs of a bin

Proof. Take any schedule that meets the deadlines of a set S of jobs. Put y_j = 1 for j in S and 0
otherwise, and let x_jl(b) be the time that j in S really spends in bin b on level l before its
deadline. No job is on two levels at once, all its work is done before its deadline, and no more than
G GPUs are ever used, so all constraints hold with value |S|: the optimum is at least |S|. Splitting,
stopping and moving jobs for nothing, and rates that any mixture of levels gives, only help. So for n
jobs no schedule meets more than floor(LP) deadlines, and floor(n x share) / n is printed.

Only levels on the concave hull of (GPUs, rate), through the origin, are needed: any other level is
dominated by a mixture of two of them with no more GPUs. Bins need not be
fine for this to be a bound: constraints are summed over a bin, which relaxes them.

Presolve, which leaves the optimum as it is. Where the widest levels of all jobs of a bin fit
together, its third row follows from the second: the bin is never short. A job's never-short bins
are one bin, as any mix of levels can be spread over them in proportion to their seconds. A job that
its widest level ends in never-short time alone takes nothing from anybody: it counts as met and is
left out, and the bins are looked at again without it, since it uses none of those still short.

On 1,000 small instances of one to four jobs, each searched exhaustively (tests), the printed bound
is 0.008 jobs too high on average, and never too low.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Floats
from laxity_scheduler.simulate.traces import Trace, TraceJob

BIN_S: Final = 600.0
MOST_BINS: Final = 40_000
Ints = NDArray[np.int64]


def hull(job: TraceJob, most_gpus: int) -> list[tuple[int, float]]:
    """(GPUs, share of the job per second) on the concave hull, without the origin."""
    if job.table is None:
        return [(job.gpus, 1.0 / job.duration_s)] if job.gpus <= most_gpus else []
    points = [
        (gpus, job.table.speed(gpus) / job.iterations)
        for gpus in job.table.levels
        if gpus <= most_gpus
    ]
    kept: list[tuple[int, float]] = []
    for gpus, rate in points:
        while kept and _slope(kept[-1], (gpus, rate)) >= _slope(
            kept[-2] if len(kept) > 1 else (0, 0.0), kept[-1]
        ):
            kept.pop()
        kept.append((gpus, rate))
    return kept


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


def deadline_bound(trace: Trace, *, gpus: int, bin_s: float = BIN_S) -> float | None:
    """floor(n x LP) / n over the jobs with a deadline; None if there is none."""
    jobs = [job for job in trace.jobs if job.deadline_at < math.inf]
    if not jobs:
        return None
    kept = _kept_at(jobs, gpus, bin_s)
    if kept.is_file():
        return float(kept.read_text())
    share = _share(jobs, relaxed(jobs, gpus=gpus, bin_s=bin_s))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(repr(share))
    return share


def _kept_at(jobs: Sequence[TraceJob], gpus: int, bin_s: float) -> Path:
    """Where the answer for these jobs on so many GPUs is kept: the LP takes seconds to minutes."""
    told = repr((gpus, bin_s, [replace(job, id="", namespace="") for job in jobs]))
    folder = Path(os.environ.get("LAXITY_HOME") or Path.home() / ".laxity")
    return folder / "bounds" / f"{sha256(told.encode()).hexdigest()[:24]}.txt"


def _share(jobs: Sequence[TraceJob], value: float) -> float:
    return math.floor(value + 1e-6) / len(jobs)


def relaxed(jobs: Sequence[TraceJob], *, gpus: int, bin_s: float = BIN_S) -> float:
    """The LP's value: at most so many of these jobs can be in time."""
    hopeful = [job for job in jobs if _alone_in_time(job, gpus)]
    if not hopeful:
        return 0.0
    edges = _edges(hopeful, bin_s)
    return _solve(hopeful, edges, gpus)


def _alone_in_time(job: TraceJob, gpus: int) -> bool:
    window_s = job.deadline_at - job.submitted_at
    best = max((rate for _, rate in hull(job, gpus)), default=0.0)
    return best * window_s >= 1.0 - 1e-9


def _edges(jobs: Sequence[TraceJob], bin_s: float) -> Floats:
    """Edges of equal bins, from the first submission to the last deadline."""
    first = min(job.submitted_at for job in jobs)
    last = max(job.deadline_at for job in jobs)
    return np.linspace(first, last, min(max(1, math.ceil((last - first) / bin_s)), MOST_BINS) + 1)


@dataclass(frozen=True, slots=True)
class _Row:
    """One job: its levels, the bins of its window and the seconds of each that are in it."""

    levels: list[tuple[int, float]]
    bins: Ints
    overlap_s: Floats

    @property
    def most_gpus(self) -> int:
        return self.levels[-1][0]

    @property
    def rate(self) -> float:
        return self.levels[-1][1]


def _row(job: TraceJob, edges: Floats, gpus: int) -> _Row:
    first = max(0, int(np.searchsorted(edges, job.submitted_at, side="right")) - 1)
    last = int(np.searchsorted(edges, job.deadline_at, side="left"))
    own = np.arange(first, min(max(last, first + 1), len(edges) - 1))
    overlap = np.minimum(edges[own + 1], job.deadline_at) - np.maximum(edges[own], job.submitted_at)
    return _Row(hull(job, gpus), own, np.maximum(overlap, 0.0))


def _presolved(rows: list[_Row], bins: int, gpus: int) -> tuple[int, list[_Row], NDArray[np.bool_]]:
    """How many jobs are met without contention, the others, and the bins that they can fill."""
    met = 0
    while True:
        wanted = np.zeros(bins)
        for row in rows:
            wanted[row.bins] += row.most_gpus
        short = wanted > gpus
        kept = [row for row in rows if row.rate * row.overlap_s[~short[row.bins]].sum() < 1.0]
        if len(kept) == len(rows):
            return met, rows, short
        met += len(rows) - len(kept)
        rows = kept


class _Program:
    """The program's entries, job by job: y_j, then x_jl(b) by level."""

    def __init__(self, jobs: int, short: NDArray[np.bool_]) -> None:
        self.short = short
        self.jobs, self.bins = jobs, int(short.sum())
        self.place = np.cumsum(short) - 1  # of a bin that can be short among those
        self.variables, self.rows = jobs, jobs + self.bins
        self.entries: list[tuple[Any, Any, Any]] = []

    def add(self, number: int, row: _Row) -> None:
        """Its bins that can be short, and all the others together as one more."""
        own = self.short[row.bins]
        shared = self.jobs + self.place[row.bins[own]]
        spans = np.append(row.overlap_s[own], row.overlap_s[~own].sum())
        window = self.rows + np.arange(len(spans))
        self.rows += len(spans)
        self._put(number, number, 1.0)
        for held, rate in row.levels:
            mine = self.variables + np.arange(len(spans))
            self.variables += len(spans)
            self._put(np.full(len(spans), number), mine, -rate)
            self._put(shared, mine[:-1], held)
            self._put(window, mine, 1.0)
        self._put(window, np.full(len(spans), number), -spans)

    def _put(self, rows: Any, columns: Any, values: Any) -> None:
        rows = np.atleast_1d(rows)
        self.entries.append((rows, np.atleast_1d(columns), np.broadcast_to(values, rows.shape)))

    def optimum(self, lengths: Floats, gpus: int) -> float:
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        rows, columns, values = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        matrix = coo_array((values, (rows, columns)), shape=(self.rows, self.variables)).tocsr()
        limits = np.zeros(self.rows)
        limits[self.jobs : self.jobs + self.bins] = gpus * lengths[self.short]
        cost, upper = np.zeros(self.variables), np.full(self.variables, np.inf)
        cost[: self.jobs], upper[: self.jobs] = -1.0, 1.0
        found = linprog(
            cost,
            A_ub=cast("Any", matrix),
            b_ub=limits,
            bounds=np.column_stack([np.zeros(self.variables), upper]).tolist(),
            method="highs",
        )
        if found.status != 0:
            message = f"the bound's linear program was not solved: {found.message}"
            raise RuntimeError(message)
        return -float(found.fun or 0.0)


def _solve(jobs: Sequence[TraceJob], edges: Floats, gpus: int) -> float:
    """The program's optimum: those met without contention, and the rest by the solver."""
    rows = [_row(job, edges, gpus) for job in jobs]
    met, rows, short = _presolved(rows, len(edges) - 1, gpus)
    if not rows:
        return float(met)
    program = _Program(len(rows), short)
    for number, row in enumerate(rows):
        program.add(number, row)
    return met + program.optimum(np.diff(edges), gpus)
