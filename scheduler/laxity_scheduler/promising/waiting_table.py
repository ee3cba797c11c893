"""The waiting jobs of a snapshot as columns, and the queue that they make.

Promised jobs come first, least slack first; then those that have waited too long; then soft jobs
that claim what promises leave, and those that would only be in time alone, both by least slack;
soft jobs that are late anyway, shortest first, since each second late costs the same whoever is
late; then best effort, shortest first. A hard job whose deadline has passed counts as soft.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.curve import Quantile
from laxity_scheduler.frame.fields import (
    BEST_EFFORT,
    DUE_AT,
    EXTRA,
    LEFT,
    QUEUED_AT,
    SERVICE,
    SIZE,
    START,
    STOP,
    SUBMITTED_AT,
    TOTAL,
    WAITING,
    WIDTH,
)
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.claims import want_promise
from laxity_scheduler.promising.queueing import RANKS, Rank, Waiting
from laxity_scheduler.promising.reservations import Reservations

NAMES: Final[tuple[Rank, ...]] = tuple(sorted(RANKS, key=lambda rank: RANKS[rank]))
PROMISED, AGED, DUE, SOFT, HOPELESS, LEAST = range(6)


class WaitingTable:
    """Waiting jobs, a row of the frame each; columns of shape (n,)."""

    def __init__(self, forecasts: Forecasts, rows: Ints) -> None:
        self.frame, self.rows, self.now = forecasts.frame, rows, forecasts.now
        self.jobs = self.frame.at(rows)
        self.size = self.column(SIZE).astype(np.int64)
        self._places = np.full(len(self.frame.jobs), -1)  # of rows
        self._places[rows] = np.arange(len(rows))

    def column(self, field: int) -> Floats:
        return self.frame.column(field)[self.rows]

    @cached_property
    def width(self) -> Ints:
        """Workers by level, (n, L); 0 where one has no such level."""
        width = self.frame.levels("p90")[:, WIDTH, :-EXTRA][self.rows]
        return np.where(np.isfinite(width), width, 0.0).astype(np.int64)

    def total_s(self, quantile: Quantile) -> Floats:
        """Seconds of the whole epochs that are left, (n, L)."""
        return self.frame.levels(quantile)[:, TOTAL, :-EXTRA][self.rows]

    def at(self, jobs: Sequence[Job]) -> Ints:
        """Their places; up to the first that is not among the waiting."""
        places: Ints = self._places[self.frame.row_numbers(jobs)]
        return places[: int((places < 0).argmax())] if (places < 0).any() else places

    @cached_property
    def rest_s(self) -> Floats:
        """Seconds to the end at P90, by level."""
        return self.frame.by_level_s(self.rows, "p90")

    @cached_property
    def held_s(self) -> Floats:
        """How long one holds its least width if it is stopped at its first epoch's end (P90)."""
        least = self.frame.levels("p90")[:, :, 0][self.rows]
        epoch_s = least[:, TOTAL] / np.maximum(self.column(LEFT), 1.0)
        return least[:, START] + epoch_s + least[:, STOP]

    @cached_property
    def in_force_at(self) -> Floats:
        """The deadline that was promised, else the one that is asked for."""
        return self.frame.in_force_at[self.rows]

    @cached_property
    def by_id(self) -> Ints:
        """Each job's place in the order of ids."""
        return self.frame.ranks[self.rows]

    def slack(self) -> tuple[Floats, Ints]:
        """As `queueing.slack`: spare seconds, and on which level."""
        return self.frame.slack_s(self.rows, self.in_force_at - self.now)


def build_waiting_table(forecasts: Forecasts) -> WaitingTable:
    """Of the jobs of a snapshot that may be started."""
    rows = np.flatnonzero(forecasts.frame.column(WAITING) > 0.0)
    return WaitingTable(forecasts, rows)


def build_queue(
    table: WaitingTable, jobs: Sequence[Job], reservations: Reservations
) -> list[Waiting]:
    """All of these that may start, in order; hard jobs that have no verdict yet are left out."""
    names = [job.id for job in jobs]
    places, widths = table.at(jobs), reservations.shares.rows_of(names).workers
    aged = _are_aged(names, reservations)
    claimed = (widths >= 0) & ~aged
    rank, key, workers, slack_s = _rank_rows(table)
    mine = places[claimed]
    rank[mine], key[mine], workers[mine] = PROMISED, slack_s[mine], widths[claimed]
    rank[places[[name in reservations.behind for name in names]]] = DUE
    mine = places[aged]
    rank[mine], key[mine] = AGED, table.column(QUEUED_AT)[mine]
    workers[mine] = table.width[mine, 0]
    slack_s[rank == LEAST] = FOREVER
    places = places[claimed | aged | ~want_promise(table.frame)[table.rows[places]]]
    submitted_at = table.column(SUBMITTED_AT)[places]
    keys = (table.by_id[places], submitted_at, key[places], rank[places])
    places = places[np.lexsort(keys)]
    return construct_many(
        Waiting,
        [table.jobs[place] for place in places.tolist()],
        [NAMES[number] for number in rank[places].tolist()],
        workers[places].tolist(),
        slack_s[places].tolist(),
    )


def _are_aged(names: Sequence[str], reservations: Reservations) -> Bools:
    """Which of these have waited too long, (len(names),)."""
    aged = frozenset(job.id for job in reservations.aged)
    if not aged:
        return np.zeros(len(names), dtype=np.bool_)
    return np.array([name in aged for name in names], dtype=np.bool_)


def _rank_rows(table: WaitingTable) -> tuple[Ints, Floats, Ints, Floats]:
    """Rank, key, width and slack of each job as if it had no claim."""
    slack, level = table.slack()
    rows = np.arange(len(slack))
    least = table.width[:, 0]
    last = (table.width > 0).sum(axis=1) - 1
    widest, total_s = table.width[rows, last], table.total_s("mean")
    best_effort = (table.column(DUE_AT) == FOREVER) | (table.column(SERVICE) == BEST_EFFORT)
    with np.errstate(invalid="ignore", over="ignore"):
        narrow_s = total_s[:, 0] * least * table.size
        wide_s = total_s[rows, last] * widest * table.size
    soft = slack >= 0.0
    rank = np.where(best_effort, LEAST, np.where(soft, SOFT, HOPELESS))
    key = np.where(best_effort, narrow_s, np.where(soft, slack, wide_s))
    workers = np.where(best_effort | ~soft, least, table.width[rows, level])
    return rank, key, workers, slack
