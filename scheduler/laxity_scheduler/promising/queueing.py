"""The queue: waiting jobs as columns, the place of each, and when each may expect to start.

Promised jobs come first, least slack first; then those that have waited too long; then soft jobs
that claim what promises leave, and those that would only be in time alone, both by least slack;
soft jobs that are late anyway, shortest first, since each second late costs the same whoever is
late; then best effort, shortest first. A hard job whose deadline has passed counts as soft.

Shortest first lets each short job that comes overtake, so that no finish can be told for sure. With
a predictability above 0 best-effort jobs go by class instead, as in PCS: classes share the GPUs, and
within one who came first goes first. That a class is a decade of run time, with equal shares, is ours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Final, Literal

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints, construct_many
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
    WORKERS,
)
from laxity_scheduler.frame.frame import Frame
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import NO_NODES, ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.claims import deadline_in_force, want_promise
from laxity_scheduler.promising.reservations import Reservations

Rank = Literal["promised", "aged", "due", "soft", "hopeless", "best_effort"]
RANKS: Mapping[Rank, int] = {
    "promised": 0,
    "aged": 1,
    "due": 2,
    "soft": 3,
    "hopeless": 4,
    "best_effort": 5,
}
NAMES: Final[tuple[Rank, ...]] = tuple(sorted(RANKS, key=lambda rank: RANKS[rank]))
PROMISED, AGED, DUE, SOFT, HOPELESS, LEAST = range(6)
CLASS_S: Final = 600.0  # classes of run time: up to 10 times that, up to 100 times, ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue: its place, and the width it should start with."""

    job: Job
    rank: Rank
    workers: int
    slack_s: float = FOREVER


def slack(job: Job, forecasts: Forecasts) -> tuple[float, int]:
    """Spare seconds at P90 on the least width that is in time; negative: on the fastest one."""
    return forecasts.slack_s(job, deadline_in_force(job) - forecasts.now)


def predict_starts(
    queue: Sequence[Waiting], reservations: Reservations, state: ClusterState
) -> dict[str, float]:
    """Seconds from now to each start, if all runs as predicted (mean) and GPUs were one pool.

    A promised job starts as planned. The others start in order, none before the one ahead of it.
    Who may use some nodes only is looked at on these, behind all that may use any of them; whose quota
    bounds it, behind those of the same quota as well.
    """
    starts = _starts_on(queue, reservations, state.free_gpus)
    for name in sorted({entry.job.eligible for entry in queue} - {""}):
        mine = [entry for entry in queue if entry.job.eligible == name]
        may = state.eligible_nodes(mine[0].job) or NO_NODES
        free = state.capacity(name).free_gpus
        rivals = [entry for entry in queue if _meets(state.eligible_nodes(entry.job), may)]
        held = [
            (job, sum(node in may for node in job.nodes) * job.gpus_per_worker)
            for job in state.running
        ]
        rival_starts = _starts_on(rivals, reservations, free, held)
        starts |= {entry.job.id: rival_starts.get(entry.job.id, FOREVER) for entry in mine}
    for name, free in state.quota_left.items():
        mine = [entry for entry in queue if entry.job.quota == name]
        held = [(job, job.gpus) for job in state.running if job.quota == name]
        rival_starts = _starts_on(mine, reservations, max(0, free), held) if mine else {}
        starts |= {job: max(at_s, starts[job]) for job, at_s in rival_starts.items()}
    return starts


def _meets(one: frozenset[str] | None, other: frozenset[str]) -> bool:
    return one is None or not one.isdisjoint(other)


def _starts_on(
    queue: Sequence[Waiting],
    reservations: Reservations,
    free_gpus: int,
    running: Iterable[tuple[Job, int]] | None = None,
) -> dict[str, float]:
    """When each of the queue starts on so many free GPUs, and those that running jobs hold there; None: all they hold."""
    forecasts, rows = reservations.forecasts, reservations.room.rows
    if running is None:
        running = [(job, job.gpus) for job in reservations.state.running]
    held = [(job, gpus) for job, gpus in running if gpus]
    frees_s = rows.frees_s[forecasts.frame.row_numbers([job for job, _ in held])].tolist()
    ends = [(end_s, gpus) for end_s, (_, gpus) in zip(frees_s, held, strict=True)]
    heapify(ends)
    starts: dict[str, float] = {}
    at_s, free = 0.0, free_gpus
    planned_s = reservations.shares.rows_of([entry.job.id for entry in queue]).starts_s.tolist()
    for entry, plan_s in zip(queue, planned_s, strict=True):
        need = entry.workers * entry.job.gpus_per_worker
        while free < need and ends:
            end_s, gpus = heappop(ends)
            at_s, free = max(at_s, end_s), free + gpus
        fits_s = at_s if free >= need else FOREVER
        starts_s = min(fits_s, plan_s)  # without a plan: never
        starts[entry.job.id] = starts_s
        if free >= need:
            free -= need
            heappush(ends, (starts_s + forecasts.rest_s(entry.job, entry.workers, "mean"), need))
    return starts


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
    best_effort = _are_best_effort(table.frame)[table.rows]
    with np.errstate(invalid="ignore", over="ignore"):
        narrow_s = total_s[:, 0] * least * table.size
        wide_s = total_s[rows, last] * widest * table.size
    soft = slack >= 0.0
    rank = np.where(best_effort, LEAST, np.where(soft, SOFT, HOPELESS))
    if table.frame.predictability > 0.0:
        narrow_s = _turns(table, best_effort)
    key = np.where(best_effort, narrow_s, np.where(soft, slack, wide_s))
    workers = np.where(best_effort | ~soft, least, table.width[rows, level])
    return rank, key, workers, slack


def _are_best_effort(frame: Frame) -> Bools:
    free: Bools = (frame.column(DUE_AT) == FOREVER) | (frame.column(SERVICE) == BEST_EFFORT)
    return free


def _turns(table: WaitingTable, best_effort: Bools) -> Floats:
    """When each is due: at how many GPUs of its class, with those that its best-effort jobs hold, (n,)."""
    frame = table.frame
    run_s = np.maximum(frame.levels("mean")[:, TOTAL, 0], CLASS_S)
    classes = np.where(run_s < FOREVER, np.floor(np.log10(run_s / CLASS_S)), FOREVER)
    held = np.where(_are_best_effort(frame), frame.column(WORKERS) * frame.column(SIZE), 0.0)
    turns, needs = np.zeros(len(best_effort)), table.width[:, 0] * table.size
    order = np.lexsort((table.by_id, table.column(SUBMITTED_AT)))
    order = order[best_effort[order]]
    for one in np.unique(classes[table.rows[order]]).tolist():
        mine = order[classes[table.rows[order]] == one]
        turns[mine] = held[classes == one].sum() + np.cumsum(needs[mine])
    return turns
