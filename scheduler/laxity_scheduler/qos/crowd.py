"""Hundreds of waiting jobs in a roomy cluster, judged, ordered and started all at once.

What the QoS policy does job by job (`promise`, `queueing`, `starting`, `sizing`), on columns, for
those of whom nothing special is to be said: no holds, no budgets, room for all claims at once. Each
step does the first so many jobs and says how many; from there on it goes job by job.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from operator import attrgetter, lt
from typing import TYPE_CHECKING, Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.ledger import MANY
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.frame import (
    BEST_EFFORT,
    DUE_AT,
    HARD,
    PROMISED_DUE_AT,
    SERVICE,
    SUBMITTED_AT,
    WAITING,
    WANTS,
)
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.frame.waiters import MEAN, P90, Waiters, waiters_of
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
        facts = self._facts = forecasts.facts
        self.now = forecasts.now
        self._rows = rows
        self.waiters: Waiters = waiters_of(facts.at(rows), forecasts)
        names = map(NAME, self.waiters.jobs)
        self.place = dict(zip(names, range(len(rows)), strict=True))

    def column(self, field: int) -> Floats:
        return self._facts.column(field)[self._rows]

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
        return self.waiters.rest_s(P90)

    @cached_property
    def in_force_at(self) -> Floats:
        """The deadline that was promised, else the one that is asked for."""
        due_at = self.column(PROMISED_DUE_AT)
        return np.where(due_at > -FOREVER, due_at, self.column(DUE_AT))

    @cached_property
    def by_id(self) -> Ints:
        """Each job's place in the order of ids."""
        ids = [job.id for job in self.waiters.jobs]
        if all(map(lt, ids, ids[1:])):
            return np.arange(len(ids))
        ranks = np.empty(len(ids), dtype=np.int64)
        ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
        return ranks

    def slack(self) -> tuple[Floats, Ints]:
        """As `queueing.slack`: spare seconds, and on which level."""
        with np.errstate(invalid="ignore"):
            slack = (self.in_force_at - self.now)[:, None] - self.rest_s
        slack = np.where((self.waiters.width > 0) & ~np.isnan(slack), slack, -FOREVER)
        fits = slack >= 0.0
        level = np.where(fits.any(axis=1), fits.argmax(axis=1), slack.argmax(axis=1))
        return slack[np.arange(len(slack)), level], level


def crowd_of(forecasts: Forecasts) -> Crowd | None:
    """The waiting jobs if they are many."""
    rows = np.flatnonzero(forecasts.facts.column(WAITING) > 0.0)
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
        crowd.waiters.at(at),
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
    waiters = crowd.waiters
    slack, level = crowd.slack()
    rows = np.arange(len(slack))
    least = waiters.width[:, 0]
    last = (waiters.width > 0).sum(axis=1) - 1
    widest, total_s = waiters.width[rows, last], waiters.total_s(MEAN)
    best_effort = (crowd.column(DUE_AT) == FOREVER) | (crowd.column(SERVICE) == BEST_EFFORT)
    with np.errstate(invalid="ignore"):
        narrow_s = total_s[:, 0] * least * waiters.size
        wide_s = total_s[rows, last] * widest * waiters.size
    soft = slack >= 0.0
    rank = np.where(best_effort, LEAST, np.where(soft, SOFT, HOPELESS))
    key = np.where(best_effort, narrow_s, np.where(soft, slack, wide_s))
    workers = np.where(best_effort | ~soft, least, waiters.width[rows, level])
    return rank, key, workers, slack
