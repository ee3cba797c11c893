"""Hundreds of waiting jobs in a roomy cluster, judged, ordered and started all at once.

What the QoS policy does job by job (`promise`, `queueing`, `starting`, `sizing`), on columns, for
those of whom nothing special is to be said: no holds, no budgets, room for all claims at once. Each
step does the first so many jobs and says how many; from there on it goes job by job.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.ledger import MANY
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.curve import Quantile
from laxity_scheduler.frame.fields import (
    BEST_EFFORT,
    DUE_AT,
    EXTRA,
    HARD,
    LEFT,
    PROMISED_DUE_AT,
    SERVICE,
    SIZE,
    START,
    STOP,
    SUBMITTED_AT,
    TOTAL,
    WAITING,
    WANTS,
    WIDTH,
)
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.queueing import RANKS, Rank, Waiting, in_order, unpromised

if TYPE_CHECKING:
    from laxity_scheduler.promising.reservations import Reservations

NAMES: Final[tuple[Rank, ...]] = tuple(sorted(RANKS, key=lambda rank: RANKS[rank]))
PROMISED, AGED, SOFT, HOPELESS, LEAST = range(5)
NAME: Final = attrgetter("id")


class Crowd:
    """The waiting jobs of a snapshot, as columns."""

    def __init__(self, forecasts: Forecasts, rows: Ints) -> None:
        self.frame, self.rows, self.now = forecasts.frame, rows, forecasts.now
        self.jobs = self.frame.at(rows)
        self.size = self.column(SIZE).astype(np.int64)
        names = map(NAME, self.jobs)
        self.place = dict(zip(names, range(len(rows)), strict=True))

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
        place, names = self.place, map(NAME, jobs)
        try:
            return np.fromiter(map(place.__getitem__, names), np.int64, len(jobs))
        except KeyError:
            known = takewhile(place.__contains__, map(NAME, jobs))
            return np.array(list(map(place.__getitem__, known)), dtype=np.int64)

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
        due_at = self.column(PROMISED_DUE_AT)
        return np.where(due_at > -FOREVER, due_at, self.column(DUE_AT))

    @cached_property
    def by_id(self) -> Ints:
        """Each job's place in the order of ids."""
        return self.frame.ranks[self.rows]

    def slack(self) -> tuple[Floats, Ints]:
        """As `queueing.slack`: spare seconds, and on which level."""
        return self.frame.slack_s(self.rows, self.in_force_at - self.now)


def crowd_of(forecasts: Forecasts) -> Crowd | None:
    """The waiting jobs if they are many."""
    rows = np.flatnonzero(forecasts.frame.column(WAITING) > 0.0)
    return Crowd(forecasts, rows) if len(rows) >= MANY else None


def queue_at_once(crowd: Crowd, jobs: Sequence[Job], reservations: "Reservations") -> list[Waiting]:
    """As `promise.queue_of`."""
    aged = frozenset(job.id for job in reservations.aged)
    names = [job.id for job in jobs]
    planned = reservations.shares.outline(names).workers
    held = planned >= 0
    at = crowd.at(jobs)
    wants = (crowd.column(SERVICE) == HARD) & (crowd.column(DUE_AT) < FOREVER)
    wants &= (crowd.column(WANTS) > 0.0) & ~(crowd.column(PROMISED_DUE_AT) >= crowd.now)
    kept = held | ~wants[at]
    if aged:
        kept &= np.array([name not in aged for name in names], dtype=np.bool_)
    rank, key, workers, slack = _ranked(crowd)
    mine = kept & held
    rank[at[mine]], key[at[mine]] = PROMISED, slack[at[mine]]
    workers[at[mine]] = planned[mine]
    slack[rank == LEAST] = FOREVER
    at = at[kept]
    submitted_at = crowd.column(SUBMITTED_AT)[at]
    at = at[np.lexsort((crowd.by_id[at], submitted_at, key[at], rank[at]))]
    found = construct_many(
        Waiting,
        [crowd.jobs[row] for row in at.tolist()],
        [NAMES[one] for one in rank[at].tolist()],
        key[at].tolist(),
        workers[at].tolist(),
        slack[at].tolist(),
    )
    forecasts = reservations.forecasts
    others = [unpromised(job, forecasts, aged=True) for job in jobs if job.id in aged]
    return in_order([*found, *others]) if others else found


def _ranked(crowd: Crowd) -> tuple[Ints, Floats, Ints, Floats]:
    """Rank, key, width and slack of each job as if it had no claim (`queueing.unpromised`)."""
    slack, level = crowd.slack()
    rows = np.arange(len(slack))
    least = crowd.width[:, 0]
    last = (crowd.width > 0).sum(axis=1) - 1
    widest, total_s = crowd.width[rows, last], crowd.total_s("mean")
    best_effort = (crowd.column(DUE_AT) == FOREVER) | (crowd.column(SERVICE) == BEST_EFFORT)
    with np.errstate(invalid="ignore"):
        narrow_s = total_s[:, 0] * least * crowd.size
        wide_s = total_s[rows, last] * widest * crowd.size
    soft = slack >= 0.0
    rank = np.where(best_effort, LEAST, np.where(soft, SOFT, HOPELESS))
    key = np.where(best_effort, narrow_s, np.where(soft, slack, wide_s))
    workers = np.where(best_effort | ~soft, least, crowd.width[rows, level])
    return rank, key, workers, slack
