"""The rows of a snapshot as the loops that plan them want them: where each job is, what each width takes.

At P90. Only rows that are other objects than last time are read again; queued rows of one curve are
alike and are read together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats, Predictor
from laxity_scheduler.frame.arrays import Ints, carried
from laxity_scheduler.frame.curve import ROW, Curve
from laxity_scheduler.model.job import FOREVER, Job

FIELDS: Final = 17
(
    WORKERS,
    HAS_FORMED,
    SIZE,
    LEFT,  # epochs
    BEGUN_AT,  # of its running epoch; not a number: none runs
    PARKED,
    STOPPING,  # told to, or parked
    RESUMED_AT,
    CHANGED_AT,
    LEVELS,
    STAYS,  # it may not be preempted
    MEAN_EPOCH_S,  # at the width that it has
    PLANNED_AT,  # when its promise planned to start it
    TERMINATING,
    PINNED,
    RESIZING,  # asked for another width
    FORMED_AT,  # the width that it formed at; 0 before
) = range(FIELDS)
KINDS: Final = 4
WIDTH, TOTAL, START, STOP = range(KINDS)
OWN, FORMED, ASKED, EXTRA = -3, -2, -1, 3  # levels: the width it has, formed at, was asked to have
NOBODY: Final = -9  # no level: no workers
P90, MEAN = ROW["p90"], ROW["mean"]


@dataclass(frozen=True, slots=True)
class Lanes:
    """n rows: `table` (n, FIELDS); `levels` and, at the mean, `means` (n, KINDS, L + EXTRA)."""

    jobs: Sequence[Job]
    places: Mapping[str, int]  # which row a job has
    ranks: Ints  # (n,): each row's place in the order of ids
    table: Floats
    levels: Floats
    means: Floats

    def rows(self, jobs: Sequence[Job]) -> Ints | None:
        """Which rows these are; None if one of them is not among them."""
        try:
            found = list(map(self.places.__getitem__, [job.id for job in jobs]))
        except KeyError:
            return None
        same = all(map(is_, map(self.jobs.__getitem__, found), jobs))
        return np.array(found, dtype=np.int64) if same else None


EMPTY: Final = Lanes(
    (),
    {},
    np.zeros(0, dtype=np.int64),
    np.zeros((0, FIELDS)),
    *(np.zeros((0, KINDS, 1 + EXTRA)) for _ in range(2)),
)
Alike = tuple[int, int, int, int]  # a curve by identity; workers, formed, asked for: equal levels
_LAST: list[tuple[Predictor, Lanes]] = []  # the rows read last; answers do not depend on them


def lanes_of(predictor: Predictor, jobs: tuple[Job, ...], curve: Callable[[Job], Curve]) -> Lanes:
    """The lanes of these rows. What-ifs ask beside the loop: the memory is replaced as a whole."""
    known = _LAST[0] if _LAST else None
    last = known[1] if known is not None and known[0] is predictor else EMPTY
    if last.jobs is not jobs:
        last = _patched(last, jobs, curve)
        _LAST[:] = [(predictor, last)]
    return last


def _patched(last: Lanes, jobs: tuple[Job, ...], curve: Callable[[Job], Curve]) -> Lanes:
    old = (last.table, last.levels, last.means)
    (table, *levels), changed = carried(last.jobs, jobs, old)
    curves = [curve(jobs[row]) for row in changed]
    deepest = max((len(one.widths) for one in curves), default=1) + EXTRA
    if deepest > levels[0].shape[2]:
        levels = [_deeper(one, deepest) for one in levels]
    alike: dict[Alike, tuple[Curve, list[int]]] = {}
    for row, one in zip(changed, curves, strict=True):
        job = jobs[row]
        own = (job.workers, job.formed, job.resize_to) if job.workers else (0, 0, 0)
        alike.setdefault((id(one), *own), (one, []))[1].append(row)
    for one, rows in alike.values():
        first = [jobs[row] for row in rows]
        runs = first[0].workers > 0
        table[rows] = [_fields(job, one) for job in first] if runs else _queued_fields(first, one)
        for at, quantile in zip(levels, (P90, MEAN), strict=True):
            at[rows] = level_rows(one, at.shape[2], quantile, first[0])
    return Lanes(jobs, *_places(last, jobs, changed), table, *levels)


def _queued_fields(jobs: Sequence[Job], curve: Curve) -> Floats:
    """`_fields` of rows without workers that share a curve, column by column: that is faster."""
    table = np.zeros((len(jobs), FIELDS))
    table[:, (BEGUN_AT, RESUMED_AT, CHANGED_AT)] = np.nan
    table[:, LEFT], table[:, LEVELS] = curve.epochs_left, len(curve.widths)
    table[:, SIZE] = [job.gpus_per_worker for job in jobs]
    table[:, STAYS] = [not job.preemptible for job in jobs]
    table[:, PLANNED_AT] = [planned_at(job) for job in jobs]
    table[:, TERMINATING] = [job.terminating_workers for job in jobs]
    table[:, PINNED] = [job.pinned for job in jobs]
    return table


def _places(
    last: Lanes, jobs: Sequence[Job], changed: Sequence[int]
) -> tuple[Mapping[str, int], Ints]:
    """Where each id stands, and in which order; as before, if no row is another job's."""
    before = last.jobs
    if len(before) == len(jobs) and all(before[row].id == jobs[row].id for row in changed):
        return last.places, last.ranks
    places = {job.id: row for row, job in enumerate(jobs)}
    ranks = np.empty(len(jobs), dtype=np.int64)
    ranks[[places[name] for name in sorted(places)]] = np.arange(len(jobs))
    return places, ranks


def _deeper(levels: Floats, deepest: int) -> Floats:
    """With more levels; the last ones stay last."""
    own = levels.shape[2] - EXTRA
    wider = np.full((len(levels), KINDS, deepest), FOREVER)
    wider[:, :, :own], wider[:, :, -EXTRA:] = levels[:, :, :own], levels[:, :, own:]
    return wider


def lane_of(job: Job, curve: Curve) -> tuple[Floats, Floats]:
    """One job's row and levels."""
    levels = level_rows(curve, len(curve.widths) + EXTRA, P90, job)
    return np.array(_fields(job, curve)), levels


def level_rows(curve: Curve, deepest: int, quantile: int, job: Job) -> Floats:
    """What each level takes, (KINDS, deepest); the last ones are of the job, if it has workers."""
    found = np.full((KINDS, deepest), FOREVER)
    widths = dict(enumerate(curve.widths))
    if job.workers:
        widths |= {
            deepest + OWN: job.workers,
            deepest + FORMED: job.formed or job.workers,
            deepest + ASKED: job.resize_to or job.workers,
        }
    for at, width in widths.items():
        found[WIDTH, at], found[TOTAL, at] = width, curve.totals[width][quantile]
        found[START, at] = curve.starts[width][quantile]
        found[STOP, at] = curve.stops[width][quantile]
    return found


def _fields(job: Job, curve: Curve) -> tuple[float, ...]:
    runs = bool(job.workers)
    return (
        job.workers,
        runs and job.formed > 0,
        job.gpus_per_worker,
        curve.epochs_left,
        np.nan if job.epoch_started_at is None else job.epoch_started_at,
        runs and job.parked_epoch is not None,
        runs and (job.stop_requested_at is not None or job.parked_epoch is not None),
        np.nan if job.resumed_at is None else job.resumed_at,
        np.nan if job.width_changed_at is None else job.width_changed_at,
        len(curve.widths),
        not job.preemptible,
        curve.totals[job.workers][MEAN] / max(1, curve.epochs_left) if runs else 0.0,
        planned_at(job),
        job.terminating_workers,
        job.pinned,
        runs and job.resize_to > 0,
        job.formed,
    )


def planned_at(job: Job) -> float:
    """When its promise planned to start it; 0 without one."""
    before = 0.0
    for until_at, workers in job.promise or ():
        if workers:
            return before
        before = until_at
    return 0.0
