"""An upper bound on the share of deadlines that any schedule can meet, counting contention.

Two linear programs over time bins; the lower of their values is printed, and which one gave it. Let
r_l be the share of job j that a second on level l of its throughput table does, g_l its GPUs, W_j the
time from submission to deadline, and |b cut W_j| the seconds of bin b in that window.

*Levels* (`level_bound`). x_jl(b) is the time that job j spends in bin b on level l.

    maximise  sum_j y_j                     y_j in [0, 1]: the share of job j that counts as in time
    subject   sum_bl r_l x_jl(b) >= y_j                              its work is done in its window
              sum_l x_jl(b)      <= y_j |b cut W_j|                  one level at a time
              sum_jl g_l x_jl(b) <= G |b|                            GPUs of a bin

Proof. Take any schedule that meets the deadlines of a set S of jobs. Put y_j = 1 for j in S and 0
otherwise, and let x_jl(b) be the time that j in S really spends in bin b on level l before its
deadline. No job is on two levels at once, all its work is done before its deadline, and no more than
G GPUs are ever used, so all constraints hold with value |S|: the optimum is at least |S|. Splitting,
stopping and moving jobs for nothing, and rates that any mixture of levels gives, only help. So for n
jobs no schedule meets more than floor(LP) deadlines, and floor(n x share) / n is printed.

*Work* (`work_bound`). One variable per job and bin, f_j(b): the share of the job's least GPU-time c_j
that it gets there. c_j is the least of sum_l g_l t_l with sum_l r_l t_l >= 1 and sum_l t_l <= W_j: on
the hull, a mixture of at most two neighbouring levels.

    maximise  sum_jb f_j(b)
    subject   sum_b f_j(b)        <= 1
              sum_j c_j f_j(b)    <= G |b|
              f_j(b)              <= g_max |b cut W_j| / c_j

Proof. In the schedule above, the times t_l that j in S spends on its levels before its deadline are
such a mixture, so it uses u_j >= c_j GPU-seconds in its window, u_j(b) of them in bin b. Put f_j(b) =
u_j(b) / u_j for j in S and 0 otherwise: they sum to 1, c_j f_j(b) <= u_j(b), which is at most g_max
times the seconds in the bin and, summed over jobs, at most G |b|. The value is |S|.

With equal bins the first is never the higher one: c_j y_j is at most the GPU-seconds of its x. It is
much larger, though. So the second is always solved; the first with the finest bins (600 s, 1,200 s,
... 9,600 s) with which it has at most MOST_ENTRIES variables, or not at all. No bins need be fine
for either to be a bound: constraints are summed over a bin, which relaxes them.

Only levels on the concave hull of (GPUs, rate), through the origin, are needed: any other level is
dominated by a mixture of two of them with no more GPUs.

Presolve, which leaves the optimum as it is. Where the widest levels of all jobs of a bin fit
together, its third row follows from the second: the bin is never short. A job's never-short bins
are one bin, as any mix of levels can be spread over them in proportion to their seconds. A job that
can be met in never-short time alone takes nothing from anybody: it counts as met and is left out,
and the bins are looked at again without it, since it uses none of those still short.

On 1,000 small instances of one to four jobs, each searched exhaustively (tests), neither value is
ever too low; the printed one is 0.008 jobs too high on average, that of the second alone 0.013.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from laxity.api.client import home_folder
from laxity_lab.traces.traces import Trace, TraceJob
from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints

BIN_S: Final = 600.0
COARSER: Final = (1, 2, 4, 8, 16)
MOST_BINS: Final = 40_000
MOST_ENTRIES: Final = 32_000


def hull(job: TraceJob, most_gpus: int) -> list[tuple[int, float]]:
    """(GPUs, share of the job per second) on the concave hull, without the origin."""
    if job.table is None:
        return [(job.gpus, 1.0 / job.duration_s)] if job.gpus <= most_gpus else []
    points = [
        (gpus, job.table.speed(gpus) / job.iterations)
        for gpus in job.table.levels
        if gpus <= most_gpus
    ]
    hull_points: list[tuple[int, float]] = []
    for gpus, rate in points:
        while hull_points and _slope(hull_points[-1], (gpus, rate)) >= _slope(
            hull_points[-2] if len(hull_points) > 1 else (0, 0.0), hull_points[-1]
        ):
            hull_points.pop()
        hull_points.append((gpus, rate))
    return hull_points


def _slope(low: tuple[int, float], high: tuple[int, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])


@dataclass(frozen=True, slots=True)
class Bound:
    """At most `jobs` of them can be in time; `used` says by which program, and how fine its bins."""

    jobs: int
    value: float
    used: str


def compute_bound(trace: Trace, *, gpus: int, bin_s: float = BIN_S) -> tuple[float, str] | None:
    """floor(n x LP) / n over the jobs with a deadline, and what gave it; None if there is none."""
    jobs = [job for job in trace.jobs if job.deadline_at < math.inf]
    if not jobs:
        return None
    cache_file = _cache_path(jobs, gpus, bin_s)
    if cache_file.is_file():
        share, _, used = cache_file.read_text().partition(" ")
        return float(share), used
    bound = lowest(jobs, gpus=gpus, bin_s=bin_s)
    share_found = bound.jobs / len(jobs)
    cache_file.parent.mkdir(parents=True, exist_ok=True)
    cache_file.write_text(f"{share_found!r} {bound.used}")
    return share_found, bound.used


def _cache_path(jobs: Sequence[TraceJob], gpus: int, bin_s: float) -> Path:
    """Where the answer for these jobs on so many GPUs is kept: the LP takes seconds to minutes."""
    key = repr((MOST_ENTRIES, gpus, bin_s, [replace(job, id="", namespace="") for job in jobs]))
    return home_folder() / "bounds" / f"{sha256(key.encode()).hexdigest()[:24]}.txt"


def lowest(jobs: Sequence[TraceJob], *, gpus: int, bin_s: float = BIN_S) -> Bound:
    """The lower of both bounds; the second program with the finest bins that are not too many."""
    value, used = work_bound(jobs, gpus=gpus, bin_s=bin_s), f"work, bins of {bin_s:g} s"
    for times in COARSER:
        if level_entries(jobs, gpus=gpus, bin_s=times * bin_s) <= MOST_ENTRIES:
            finer = level_bound(jobs, gpus=gpus, bin_s=times * bin_s)
            if math.floor(finer + 1e-6) < math.floor(value + 1e-6):
                value, used = finer, f"levels, bins of {times * bin_s:g} s"
            break
    return Bound(math.floor(value + 1e-6), value, used)


def level_bound(jobs: Sequence[TraceJob], *, gpus: int, bin_s: float = BIN_S) -> float:
    """The first program's value: at most so many of these jobs can be in time."""
    return _optimum(jobs, gpus, bin_s, _Program.add_levels)


def level_entries(jobs: Sequence[TraceJob], *, gpus: int, bin_s: float = BIN_S) -> int:
    """How many variables the first program has."""
    _, rows, short, _ = _prepare_rows(jobs, gpus, bin_s)
    return sum(len(row.levels) * (int(short[row.bins].sum()) + 1) + 1 for row in rows)


def _prepare_rows(
    jobs: Sequence[TraceJob], gpus: int, bin_s: float
) -> tuple[int, "list[_Row]", Bools, Floats]:
    """How many are met without contention, the others, the bins that can be short, all edges."""
    hopeful = [job for job in jobs if _alone_in_time(job, gpus)]
    if not hopeful:
        return 0, [], np.zeros(0, np.bool_), np.zeros(1)
    edges = _edges(hopeful, bin_s)
    rows = [_row(job, edges, gpus) for job in hopeful]
    return (*_presolve_rows(rows, len(edges) - 1, gpus), edges)


def work_bound(jobs: Sequence[TraceJob], *, gpus: int, bin_s: float = BIN_S) -> float:
    """The second program's value."""
    return _optimum(jobs, gpus, bin_s, _Program.add_work)


def _optimum(
    jobs: Sequence[TraceJob], gpus: int, bin_s: float, add: "Callable[[_Program, _Row], None]"
) -> float:
    met, rows, short, edges = _prepare_rows(jobs, gpus, bin_s)
    if not rows:
        return float(met)
    program = _Program(short, gpus * np.diff(edges)[short])
    for row in rows:
        add(program, row)
    return met + program.optimum()


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


def _presolve_rows(rows: list[_Row], bins: int, gpus: int) -> tuple[int, list[_Row], Bools]:
    """How many jobs are met without contention, the others, and the bins that they can fill."""
    met = 0
    while True:
        wanted = np.zeros(bins)
        for row in rows:
            wanted[row.bins] += row.most_gpus
        short = wanted > gpus
        contended = [row for row in rows if row.rate * row.overlap_s[~short[row.bins]].sum() < 1.0]
        if len(contended) == len(rows):
            return met, rows, short
        met += len(rows) - len(contended)
        rows = contended


class _Program:
    """Maximise a sum of variables from 0 to an upper end under rows of `matrix x <= limit`.

    The first rows are bins that can be short, which all jobs share; `room` has their GPU-seconds.
    """

    def __init__(self, short: Bools, room: Floats) -> None:
        self._short = short
        self._place = np.cumsum(short) - 1  # of a bin that can be short among those
        self._limits, self._limit_count = [room], len(room)
        self._entries: list[Sequence[Any]] = []  # rows, columns and values
        self._worth: list[Floats] = []
        self._upper: list[Floats] = []
        self._variables = 0

    def add_levels(self, row: _Row) -> None:
        """Of the first program: y_j, then x_jl(b) by level."""
        shared, spans = self._spans(row)
        done, window = self._rows(1, 0.0), self._rows(len(spans), 0.0)
        (share,) = self._columns(np.ones(1), worth=1.0)
        self._put(done, share, 1.0)
        for held, rate in row.levels:
            mine = self._columns(np.full(len(spans), np.inf))
            self._put(done, mine, -rate)
            self._put(shared, mine[:-1], held)
            self._put(window, mine, 1.0)
        self._put(window, share, -spans)

    def add_work(self, row: _Row) -> None:
        """Of the second program: f_j(b)."""
        cost = _least_gpu_s(row)
        shared, spans = self._spans(row)
        mine = self._columns(np.minimum(row.most_gpus * spans / cost, 1.0), worth=1.0)
        self._put(self._rows(1, 1.0), mine, 1.0)
        self._put(shared, mine[:-1], cost)

    def _spans(self, row: _Row) -> tuple[Ints, Floats]:
        """The rows of its bins that can be short; seconds in these, and in all others as one more."""
        own = self._short[row.bins]
        spans = np.append(row.overlap_s[own], row.overlap_s[~own].sum())
        return self._place[row.bins[own]], spans

    def _rows(self, count: int, limit: float) -> Ints:
        self._limits.append(np.full(count, limit))
        self._limit_count += count
        return np.arange(self._limit_count - count, self._limit_count)

    def _columns(self, upper: Floats, worth: float = 0.0) -> Ints:
        self._upper.append(upper)
        self._worth.append(np.full(len(upper), worth))
        self._variables += len(upper)
        return np.arange(self._variables - len(upper), self._variables)

    def _put(self, rows: Any, columns: Any, values: Any) -> None:
        self._entries.append(np.broadcast_arrays(rows, columns, values))

    def optimum(self) -> float:
        """The most that the sum can be. RuntimeError if the program cannot be solved."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        rows, columns, values = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        limits, upper = np.concatenate(self._limits), np.concatenate(self._upper)
        scale = np.ones(len(limits))  # GPU-seconds of bins beside shares of jobs
        scale[: len(self._limits[0])] /= self._limits[0].max(initial=1.0)
        matrix = coo_array((values * scale[rows], (rows, columns)), (len(limits), len(upper)))
        solution: Any = linprog(
            -np.concatenate(self._worth),
            A_ub=cast("Any", matrix.tocsr()),
            b_ub=limits * scale,
            bounds=np.column_stack([np.zeros(len(upper)), upper]).tolist(),
            method="highs",
        )
        if solution.status != 0:
            raise RuntimeError(f"the bound's linear program was not solved: {solution.message}")
        return -float(solution.fun or 0.0)


def _least_gpu_s(row: _Row) -> float:
    """c_j: the least GPU-time in which the job is done within its window."""
    window_s, before = float(row.overlap_s.sum()), (0, 0.0)
    for held, rate in row.levels:
        if rate * window_s >= 1.0:
            # t seconds on this level and the rest on the one before
            low_gpus, low = before
            on_s = (1.0 - low * window_s) / (rate - low)
            return held * on_s + low_gpus * (window_s - on_s) if low else held / rate
        before = (held, rate)
    held, rate = row.levels[-1]
    return held / rate  # in time but for rounding
