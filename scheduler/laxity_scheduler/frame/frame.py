"""What the rows of a snapshot say, as columns: which of ten thousand jobs need a closer look.

A decision asks the same few questions of every job (does it run as planned, is it late, does it want
a verdict), and nearly always the answer is no. Columns answer for all rows at once; whatever is not
plain is looked at row by row, by the code that knows every case. Only rows that are other objects
than last time are read again.

A job is *plain* if it starts or trains at the width that it has: not stopping, parked or changing.
Its rest is then (see `remaining`), with n epochs left of which the first is begun by phi, and with s
seconds left of its start (phi or s is 0),

    rest(w) = s + total(w) (1 - phi / n)                                       w is its width
    rest(w) = s + (1 - phi) total(v) / n + reform(w) + (n - 1) total(w) / n    w less than its width v

in the same floating-point operations, in the same order, as `Forecasts.rest_s`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats, Predictor
from laxity_scheduler.frame.arrays import Bools, Ints, carried
from laxity_scheduler.frame.curve import MOST_OF_AN_EPOCH, ROW, Curve
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.verdict import Promise

P90: Final = ROW["p90"]
FIELDS: Final = 22
(
    WORKERS,
    GPUS,
    SIZE,
    PLAIN,
    CHANGING,
    WAITING,
    SERVICE,
    WANTS,
    STOPS_LATE,
    DUE_AT,
    SUBMITTED_AT,
    PROMISED_DUE_AT,
    PROMISED_P90_AT,
    TROUBLED,
    RESUMED_AT,
    BEGUN_AT,
    EPOCHS_LEFT,
    STARTING,
    START_S,
    WIDTHS,
    TERMINATING,
    QUEUED_AT,
) = range(FIELDS)
HARD, SOFT, BEST_EFFORT = 0.0, 1.0, 2.0
SERVICES: Final = {"hard": HARD, "soft": SOFT, "best_effort": BEST_EFFORT}
TROUBLES: Final = frozenset({"promise_broken", "promise_in_danger"})


@dataclass(frozen=True, slots=True)
class _Read:
    """n rows as they were read: fields (n, FIELDS); by level (n, L): widths, totals, re-formings."""

    jobs: tuple[Job, ...]
    table: Floats
    width: Floats
    total: Floats
    reform: Floats


EMPTY: Final = _Read((), np.zeros((0, FIELDS)), *(np.zeros((0, 1)) for _ in range(3)))


_LAST: list[tuple[Predictor, _Read]] = []  # the rows read last; answers do not depend on them


def frame_of(
    predictor: Predictor, jobs: tuple[Job, ...], curve: Callable[[Job], Curve], now: float
) -> "Frame":
    """The columns of these rows. What-ifs ask beside the loop: the memory is replaced as a whole."""
    known = _LAST[0] if _LAST else None
    last = known[1] if known is not None and known[0] is predictor else EMPTY
    if last.jobs is not jobs:
        last = _patched(last, jobs, curve)
        _LAST[:] = [(predictor, last)]
    return Frame(last, now)


def _patched(last: _Read, jobs: tuple[Job, ...], curve: Callable[[Job], Curve]) -> _Read:
    """The old rows where they are the same objects; the others are read."""
    arrays, changed = carried(last.jobs, jobs, (last.table, last.width, last.total, last.reform))
    return _read(jobs, arrays, changed, curve)


def _read(
    jobs: tuple[Job, ...],
    arrays: list[Floats],
    changed: Sequence[int],
    curve: Callable[[Job], Curve],
) -> _Read:
    """These arrays with the changed rows read into them."""
    queued = [
        row
        for row in changed
        if not jobs[row].workers and not isinstance(jobs[row].verdict, Promise)
    ]
    if queued:
        rows = slice(None) if len(queued) == len(jobs) else queued
        arrays[0][rows] = _queued_fields([jobs[row] for row in queued])
        for levels in arrays[1:]:
            levels[rows] = FOREVER
    if len(queued) < len(changed):
        done = frozenset(queued)
        others = [row for row in changed if row not in done]
        arrays = _with(arrays, others, [_fields(jobs[row], curve) for row in others])
    table, width, total, reform = arrays
    return _Read(jobs, table, width, total, reform)


def _with(
    arrays: list[Floats], rows: list[int], read: list[tuple[tuple[float, ...], Curve | None]]
) -> list[Floats]:
    table, *levels = arrays
    table[rows] = [fields for fields, _ in read]
    deepest = max((len(curve.widths) for _, curve in read if curve is not None), default=1)
    if deepest > levels[0].shape[1]:
        more = ((0, 0), (0, deepest - levels[0].shape[1]))
        levels = [np.pad(old, more, constant_values=FOREVER) for old in levels]
    for old in levels:
        old[rows] = FOREVER
    for row, (_, curve) in zip(rows, read, strict=True):
        if curve is None:
            continue
        for at, width in enumerate(curve.widths):
            levels[0][row, at] = width
            levels[1][row, at] = curve.totals[width][P90]
            levels[2][row, at] = curve.stops[width][P90]
    return [table, *levels]


def _queued_fields(jobs: list[Job]) -> Floats:
    """`_fields` of rows that have no workers and no promise, column by column: that is faster."""
    table = np.zeros((len(jobs), FIELDS))
    table[:, SIZE] = [job.gpus_per_worker for job in jobs]
    table[:, QUEUED_AT] = [job.queued_at for job in jobs]
    table[:, TERMINATING] = [job.terminating_workers for job in jobs]
    table[:, WAITING] = [not (job.terminating_workers or job.pinned) for job in jobs]
    table[:, SERVICE] = [SERVICES[job.service_class] for job in jobs]
    table[:, WANTS] = [job.asked or job.verdict is None for job in jobs]
    table[:, STOPS_LATE] = [job.on_miss == "stop" for job in jobs]
    table[:, DUE_AT] = [job.deadline_at for job in jobs]
    table[:, SUBMITTED_AT] = [job.submitted_at for job in jobs]
    table[:, PROMISED_DUE_AT] = -FOREVER
    table[:, RESUMED_AT] = [-FOREVER if (at := job.resumed_at) is None else at for job in jobs]
    table[:, BEGUN_AT] = [job.epoch_started_at or 0.0 for job in jobs]
    return table


def _fields(job: Job, curve: Callable[[Job], Curve]) -> tuple[tuple[float, ...], Curve | None]:
    verdict = job.verdict
    due_at, p90_at, troubled = -FOREVER, 0.0, False
    if isinstance(verdict, Promise):
        due_at, p90_at = verdict.deadline_at, verdict.p90_at
        troubled = verdict.reason.code in TROUBLES
    found: Curve | None = None
    plain = changing = starting = False
    if job.workers:
        asked_to = job.stop_requested_at is not None or job.parked_epoch is not None
        changing = asked_to or bool(job.resize_to or job.stop_for)
    if job.workers and not job.pinned:
        found = curve(job)
        starting = not job.formed and job.epoch_started_at is None
        trains = job.formed == job.workers and job.epoch_started_at is not None
        plain = (
            not changing
            and (trains or (starting and job.resumed_at is not None))
            and found.epochs_left > 0
            and job.workers in found.widths
            and 0.0 < found.totals[job.workers][P90] < FOREVER
        )
    fields = (
        job.workers,
        job.gpus,
        job.gpus_per_worker,
        plain,
        changing,
        not (job.workers or job.terminating_workers or job.pinned),
        SERVICES[job.service_class],
        job.asked or verdict is None,
        job.on_miss == "stop",
        job.deadline_at,
        job.submitted_at,
        due_at,
        p90_at,
        troubled,
        -FOREVER if job.resumed_at is None else job.resumed_at,
        0.0 if job.epoch_started_at is None else job.epoch_started_at,
        0 if found is None else found.epochs_left,
        starting,
        0.0 if found is None else found.starts[job.workers][P90],
        0 if found is None else len(found.widths),
        job.terminating_workers,
        job.queued_at,
    )
    return fields, found if plain else None


class Frame:
    """The rows at one instant; columns of shape (n,)."""

    def __init__(self, read: _Read, now: float) -> None:
        self._read, self.now = read, now
        self.jobs = read.jobs
        self._table = read.table
        self.plain = self.column(PLAIN) > 0.0

    def column(self, field: int) -> Floats:
        return self._table[:, field]

    def where(self, mask: Bools) -> list[Job]:
        """These jobs, in the order of the snapshot."""
        return self.at(np.flatnonzero(mask))

    def at(self, rows: Ints) -> list[Job]:
        jobs = self.jobs
        return [jobs[row] for row in rows.tolist()]

    @property
    def promised(self) -> Bools:
        """Whose promise is still ahead."""
        return self.column(PROMISED_DUE_AT) >= self.now

    @property
    def rest_s(self) -> Floats:
        """Seconds to the end at the present width (P90), of plain jobs; others: not a number."""
        return self._timed[0]

    @property
    def epoch_s(self) -> Floats:
        """Seconds of an epoch at the present width (P90), of plain jobs."""
        return self._timed[2]

    @cached_property
    def widest(self) -> Floats:
        """The widest width worth having, of plain jobs."""
        width = self._read.width
        found: Floats = np.where(np.isfinite(width), width, 0.0).max(axis=1, initial=0.0)
        return found

    @cached_property
    def _timed(self) -> tuple[Floats, Floats, Floats]:
        """The rest, until the running epoch ends, and the seconds of an epoch."""
        own = self._read.width == self.column(WORKERS)[:, None]
        total = np.where(own, self._read.total, 0.0).sum(axis=1)
        left = np.maximum(self.column(EPOCHS_LEFT), 1.0)
        starts, cost = self.column(STARTING) > 0.0, self.column(START_S)
        with np.errstate(divide="ignore", invalid="ignore"):
            epoch = total / left
            phi = (self.now - self.column(BEGUN_AT)) / epoch
            phi = np.where(starts, 0.0, np.minimum(MOST_OF_AN_EPOCH, np.maximum(-1.0, phi)))
            start = np.minimum(cost, np.maximum(0.0, self.column(RESUMED_AT) + cost - self.now))
            start = np.where(starts, start, 0.0)
            rest = np.where(self.plain, start + total * (1.0 - phi / left), np.nan)
            return rest, start + (1.0 - phi) * epoch, epoch

    def least_in_time(self, rows: Ints, left_s: Floats) -> tuple[Floats, Floats]:
        """Of plain jobs: the least width up to the present one that ends in `left_s`, and when.

        Width 0 where none does. Shapes (len(rows),).
        """
        rest, boundary = self._timed[0][rows], self._timed[1][rows]
        width, total = self._read.width[rows], self._read.total[rows]
        workers = self.column(WORKERS)[rows][:, None]
        left = np.maximum(self.column(EPOCHS_LEFT)[rows], 1.0)
        own = width == workers
        with np.errstate(invalid="ignore"):
            after = boundary[:, None] + self._read.reform[rows]
            after += (left - 1.0)[:, None] * (total / left[:, None])
        after = np.where((left <= 1.0)[:, None], boundary[:, None], after)
        after = np.where(own, rest[:, None], np.where(width < workers, after, FOREVER))
        fits = (after <= left_s[:, None]) & (after < FOREVER)
        at, among = np.argmax(fits, axis=1), np.arange(len(rows))
        some = fits[among, at]
        return np.where(some, width[among, at], 0.0), np.where(some, after[among, at], FOREVER)
