"""The rows of a snapshot as one table: what each job is, what each width takes, how long it takes still.

A decision asks the same few questions of every job (does it run as planned, is it late, does it want
a verdict), and nearly always the answer is no. Columns answer for all rows at once; whatever is not
plain is looked at row by row, by the code that knows every case. Only rows that are other objects
than last time are read again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeVar

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame import compiled, fields, loops
from laxity_scheduler.frame.arrays import Bools, Ints, carry_over_rows
from laxity_scheduler.frame.curve import OVERDUE, ROW, Curve, Quantile, epochs_anew, late_s_of
from laxity_scheduler.frame.fields import EXTRA, FIELDS, KINDS, SERVICES, TROUBLES
from laxity_scheduler.frame.kernels import LEAST_SHARE
from laxity_scheduler.model.job import FOREVER, Job, Promise

PLAINLY_READ: Final = {
    fields.WORKERS: attrgetter("workers"),
    fields.SIZE: attrgetter("gpus_per_worker"),
    fields.FORMED_AT: attrgetter("formed"),
    fields.TERMINATING: attrgetter("terminating_workers"),
    fields.PINNED: attrgetter("pinned"),
    fields.BEGUN_AT: attrgetter("epoch_started_at"),
    fields.RESUMED_AT: attrgetter("start_began_at"),
    fields.CHANGED_AT: attrgetter("width_changed_at"),
    fields.QUEUED_AT: attrgetter("queued_at"),
    fields.SUBMITTED_AT: attrgetter("submitted_at"),
    fields.DUE_AT: attrgetter("deadline_at"),
}
Found = TypeVar("Found")
Steps = Sequence[tuple[float, int]]  # (seconds from now, workers from then on)
QUANTILES: Final[tuple[Quantile, ...]] = ("p50", "mean", "p90")  # that columns are asked of
OWN_WIDTHS: Final = attrgetter("workers", "formed", "resize_to")


@dataclass(frozen=True, slots=True)
class Rows:
    """n rows as they were read; of each of QUANTILES, levels (n, KINDS, L + EXTRA)."""

    jobs: Sequence[Job] = ()
    curves: Sequence[Curve] = ()
    places: Mapping[str, int] = field(default_factory=dict)  # which row a job has
    ranks: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # in the order of ids
    table: Floats = field(default_factory=lambda: np.zeros((0, FIELDS)))
    levels: Sequence[Floats] = (np.zeros((0, KINDS, 1 + EXTRA)),) * len(QUANTILES)

    def update_rows(self, jobs: Sequence[Job], curves: Sequence[Curve]) -> "Rows":
        """These rows: as they are where they are the same objects, the others read anew."""
        (table, *levels), new = carry_over_rows(self.jobs, jobs, (self.table, *self.levels))
        if new:
            new_jobs, new_curves = [jobs[row] for row in new], [curves[row] for row in new]
            table[new] = _read(new_jobs, new_curves)
            levels = _read_levels(levels, new, new_jobs, new_curves)
        return Rows(jobs, curves, *self._places(jobs, new), table, levels)

    def _places(self, jobs: Sequence[Job], new: Sequence[int]) -> tuple[Mapping[str, int], Ints]:
        """Where each id stands, and in which order; as before, if no row is another job's."""
        before = self.jobs
        if len(before) == len(jobs) and all(before[row].id == jobs[row].id for row in new):
            return self.places, self.ranks
        places = {job.id: row for row, job in enumerate(jobs)}
        ranks = np.empty(len(jobs), dtype=np.int64)
        ranks[[places[name] for name in sorted(places)]] = np.arange(len(jobs))
        return places, ranks


def _read_levels(
    before: Sequence[Floats], rows: Sequence[int], jobs: Sequence[Job], curves: Sequence[Curve]
) -> list[Floats]:
    """With what each level of these rows takes; jobs of one curve and as many workers are alike."""
    keys = list(zip(map(id, curves), map(OWN_WIDTHS, jobs), strict=True))
    firsts = dict(zip(keys, zip(curves, jobs, strict=True), strict=True))
    deepest = max(len(curve.widths) for curve, _ in firsts.values()) + EXTRA
    depth = max(before[0].shape[2], deepest)
    kinds = np.array([level_rows(curve, depth, job) for curve, job in firsts.values()])
    number = dict(zip(firsts, range(len(firsts)), strict=True))
    numbers = np.array(list(map(number.__getitem__, keys)))
    fresh = [kinds[numbers, ROW[quantile]] for quantile in QUANTILES]
    if len(rows) == len(before[0]):
        return fresh
    levels = [_deeper(old, depth) for old in before]
    for new, old in zip(fresh, levels, strict=True):
        old[rows] = new
    return levels


def _deeper(levels: Floats, deepest: int) -> Floats:
    """With so many levels, of which the last ones stay last."""
    own = levels.shape[2] - EXTRA
    if own + EXTRA == deepest:
        return levels
    wider = np.full((len(levels), KINDS, deepest), FOREVER)
    wider[:, :, :own], wider[:, :, -EXTRA:] = levels[:, :, :own], levels[:, :, own:]
    return wider


def level_rows(curve: Curve, deepest: int, job: Job) -> Floats:
    """What each level takes at each quantile of `curve.ORDER`, (4, KINDS, deepest).

    The last levels are of the job, if it has workers.
    """
    level_table = np.full((len(ROW), KINDS, deepest), FOREVER)
    widths = dict(enumerate(curve.widths))
    if job.workers:
        widths |= {
            deepest + fields.OWN: job.workers,
            deepest + fields.FORMED: job.formed or job.workers,
            deepest + fields.ASKED: job.resize_to or job.workers,
        }
    for level, width in widths.items():
        level_table[:, fields.WIDTH, level] = width
        level_table[:, fields.TOTAL, level] = curve.totals[width]
        level_table[:, fields.START, level] = curve.starts[width]
        level_table[:, fields.STOP, level] = curve.stops[width]
        level_table[:, fields.UNIT, level] = curve.units[width]
        level_table[:, fields.END, level] = curve.ends[width]
        level_table[:, fields.OVERDUE, level] = OVERDUE
    return level_table


def row_of(job: Job, curve: Curve) -> tuple[Floats, Floats]:
    """One job's row of the table, and its levels at P90."""
    levels = level_rows(curve, len(curve.widths) + EXTRA, job)
    return _read([job], [curve])[0], levels[ROW["p90"]]


def _read(jobs: Sequence[Job], curves: Sequence[Curve]) -> Floats:
    """These jobs' rows of the table, column by column."""
    table = np.zeros((len(jobs), FIELDS))
    for number, read in PLAINLY_READ.items():
        table[:, number] = np.array(list(map(read, jobs)), dtype=np.float64)  # None: no number
    table[:, fields.STAYS] = [not job.preemptible for job in jobs]
    table[:, fields.SERVICE] = [SERVICES[job.service_class] for job in jobs]
    table[:, fields.WANTS] = [job.asked or job.verdict is None for job in jobs]
    table[:, fields.STOPS_LATE] = [job.on_miss == "stop" for job in jobs]
    table[:, fields.LEFT] = [curve.epochs_left for curve in curves]
    table[:, fields.LEVELS] = [len(curve.widths) for curve in curves]
    idle = (table[:, fields.WORKERS] == 0.0) & (table[:, fields.TERMINATING] == 0.0)
    table[:, fields.WAITING] = idle & (table[:, fields.PINNED] == 0.0)
    table[:, fields.PROMISED_DUE_AT] = -FOREVER
    for row, job in enumerate(jobs):
        if isinstance(job.verdict, Promise):
            _read_promise(table[row], job, job.verdict)
        if job.workers:
            _read_running(table[row], job, curves[row])
    return table


def _read_promise(row: Floats, job: Job, promise: Promise) -> None:
    row[fields.PROMISED] = 1.0
    row[fields.PROMISED_DUE_AT] = promise.deadline_at
    row[fields.PROMISED_P90_AT] = promise.p90_at
    row[fields.TROUBLED] = promise.reason.code in TROUBLES
    row[fields.PLANNED_AT] = promise_start_at(job)


def _read_running(row: Floats, job: Job, curve: Curve) -> None:
    parked = job.parked_epoch is not None
    stopping = parked or job.stop_requested_at is not None
    changing = stopping or bool(job.resize_to or job.stop_for)
    starting = not job.formed and job.epoch_started_at is None
    trains = job.formed == job.workers and job.epoch_started_at is not None
    row[fields.HAS_FORMED], row[fields.RESIZING] = job.formed > 0, job.resize_to > 0
    row[fields.PARKED], row[fields.STOPPING], row[fields.CHANGING] = parked, stopping, changing
    row[fields.STARTING] = starting
    row[fields.LATE_S] = late_s_of(job, curve)
    row[fields.ANYWHERE] = job.stops_anywhere
    row[fields.ANEW] = epochs_anew(job)
    row[fields.MEAN_EPOCH_S] = curve.epoch_s(job.workers, "mean")
    row[fields.PLAIN] = (
        not (changing or job.pinned)
        and (trains or (starting and job.resumed_at is not None))
        and curve.epochs_left > 0
        and job.workers in curve.widths
        and 0.0 < curve.total_s(job.workers, "p90") < FOREVER
    )


def promise_start_at(job: Job) -> float:
    """When its promise planned to start it; 0 without one, never once a start of it has failed.

    Else it would come before promises with less slack that were planned behind it.
    """
    if job.failed_starts:
        return FOREVER
    before = 0.0
    for until_at, workers in job.promise or ():
        if workers:
            return before
        before = until_at
    return 0.0


def late_instant(begun_at: Any, late_s: Any, due_at: Any, now: float) -> Any:
    """From when on a part that began then, and still lasts, will at P90 not have ended when due.

    What `kernels.part_left_s` says, solved for the instant: of a part that is overdue, and of others.
    """
    times = OVERDUE[ROW["p90"]]
    spare_at = due_at - LEAST_SHARE * late_s
    with np.errstate(invalid="ignore"):  # of what nobody knows the P90 of
        overdue_at = (spare_at + times * (begun_at + late_s)) / (1.0 + times)
    return np.where(now <= begun_at + late_s, spare_at, overdue_at)


class Frame:
    """The rows at one instant; columns of shape (n,)."""

    def __init__(self, read: Rows, now: float, predictability: float = 0.0) -> None:
        """`predictability` is that of the snapshot."""
        self._read, self.now, self.predictability = read, now, predictability
        self.jobs, self.curves, self.table, self.ranks = (
            read.jobs,
            read.curves,
            read.table,
            read.ranks,
        )
        self.plain: Bools = self.column(fields.PLAIN) > 0.0
        self._lists: dict[Quantile, tuple[list[list[float]], list[list[list[float]]]]] = {}

    def column(self, field: int) -> Floats:
        return self.table[:, field]

    def row_numbers(self, jobs: Sequence[Job]) -> Ints:
        """Which rows these are; each is among them."""
        places = map(self._read.places.__getitem__, [job.id for job in jobs])
        return np.fromiter(places, np.int64, len(jobs))

    def where(self, mask: Bools) -> list[Job]:
        """These jobs, in the order of the snapshot."""
        return self.at(np.flatnonzero(mask))

    def at(self, rows: Ints) -> list[Job]:
        jobs = self.jobs
        return [jobs[row] for row in rows.tolist()]

    def levels(self, quantile: Quantile) -> Floats:
        """What each level takes, (n, KINDS, L + EXTRA)."""
        return self._read.levels[QUANTILES.index(quantile)]

    @property
    def promised(self) -> Bools:
        """Whose promise is still ahead."""
        return self.column(fields.PROMISED_DUE_AT) >= self.now

    @property
    def in_force_at(self) -> Floats:
        """The deadline that was promised, else the one that is asked for."""
        due_at = self.column(fields.PROMISED_DUE_AT)
        return np.where(due_at > -FOREVER, due_at, self.column(fields.DUE_AT))

    def late_at(self, rows: Ints, due_at: Floats) -> Floats:
        """Of these running jobs: from when on the epoch that runs, if it still does, makes them late."""
        levels, table = self.levels("p90")[rows], self.table[rows]
        total_s, unit_s = (levels[:, kind, fields.FORMED] for kind in (fields.TOTAL, fields.UNIT))
        known = np.isfinite(total_s)
        rest_s = np.where(known, total_s, FOREVER) - np.where(known, unit_s, 0.0)
        late_at: Floats = late_instant(
            table[:, fields.BEGUN_AT], table[:, fields.LATE_S], due_at - rest_s, self.now
        )
        return late_at

    @cached_property
    def widest(self) -> Floats:
        """The widest width worth having."""
        width = self.levels("p90")[:, fields.WIDTH, :-EXTRA]
        widest: Floats = np.where(np.isfinite(width), width, 0.0).max(axis=1, initial=0.0)
        return widest

    @cached_property
    def remaining_s(self) -> Floats:
        """Seconds to the end at the present width (P90), of plain jobs; others: not a number."""
        rows, remaining_s = np.flatnonzero(self.plain), np.full(len(self.jobs), np.nan)
        own, at_once = np.full(len(rows), fields.OWN), np.zeros(len(rows))
        remaining_s[rows] = self.rest_s(rows, own, at_once, "p90")
        return remaining_s

    def least_in_time(self, rows: Ints, left_s: Floats) -> tuple[Floats, Floats]:
        """Of plain jobs: the least width up to the present one that ends in `left_s`, and when.

        Width 0 where none does. Shapes (len(rows),).
        """
        return self._call(loops.least_in_time, "p90", rows, left_s)

    def slack_s(self, rows: Ints, left_s: Floats) -> tuple[Floats, Ints]:
        """Of these jobs: spare seconds on the least level in time, and which; else on the fastest."""
        return self._call(loops.slacks_s, "p90", rows, left_s)

    def by_level_s(self, rows: Ints, quantile: Quantile) -> Floats:
        """Of these jobs: seconds to the end on each level; inf on those that one has not."""
        return self._call(loops.by_level_s, quantile, rows, self.levels(quantile).shape[2] - EXTRA)

    def levels_of(self, rows: Ints, workers: Ints) -> Ints:
        """On which levels these jobs have so many workers, (len(rows), ...): the first that is so."""
        widths = self.levels("p90")[rows, fields.WIDTH]
        widths = widths.reshape(len(rows), *[1] * (workers.ndim - 1), widths.shape[1])
        level: Ints = (widths == workers[..., None]).argmax(axis=-1)
        return level

    def rest_s(self, rows: Ints, level: Ints, after_s: Floats, quantile: Quantile) -> Floats:
        """Of these jobs: seconds to the end if each is to have one level `after_s` from now on."""
        return self._call(loops.rests_s, quantile, rows, level, after_s)

    def finish_s(self, rows: Ints, plans: Sequence[Steps], quantile: Quantile) -> Floats:
        """Of these jobs: seconds to the end if each has these workers from these times on."""
        step_counts = np.array(list(map(len, plans)), dtype=np.int64)
        from_s = np.zeros((len(rows), step_counts.max(initial=1)))
        workers = np.zeros(from_s.shape, dtype=np.int64)
        for place, steps in enumerate(plans):
            for step, (at_s, width) in enumerate(steps):
                from_s[place, step], workers[place, step] = at_s, width
        level = np.where(workers > 0, self.levels_of(rows, workers), fields.NOBODY)
        return self._call(loops.finishes_s, quantile, rows, level, from_s, step_counts)

    def times_s(self, quantile: Quantile) -> tuple[Floats, Floats, Floats]:
        """Of all: when it ends; when its epoch does, and when its GPUs are free if it is stopped."""
        return self._call(loops.times_s, quantile)

    @property
    def many(self) -> bool:
        """Whether machine code is worth its call; numba is loaded for it."""
        return compiled.COMPILES and len(self.jobs) >= compiled.MANY_ROWS

    def tables(self, quantile: Quantile) -> tuple[Any, Any]:
        """Rows and levels as loops want them: arrays for machine code, else nested lists."""
        if self.many:
            return self.table, self.levels(quantile)
        if quantile not in self._lists:
            self._lists[quantile] = self.table.tolist(), self.levels(quantile).tolist()
        return self._lists[quantile]

    def tables_of(self, rows: Ints, quantile: Quantile) -> tuple[Any, Any]:
        """`tables` of these rows alone."""
        table, levels = self.tables(quantile)
        if self.many:
            return table[rows], levels[rows]
        places = rows.tolist()
        return [table[row] for row in places], [levels[row] for row in places]

    def _call(self, loop: Callable[..., Found], quantile: Quantile, *args: Any) -> Found:
        """What a loop says of these rows at this instant."""
        table, levels = self.tables(quantile)
        if self.many:
            answer: Found = compiled.compile_loop(loop)(table, levels, *args, self.now)
            return answer
        plain = [arg.tolist() if isinstance(arg, np.ndarray) else arg for arg in args]
        return loop(table, levels, *plain, self.now)
