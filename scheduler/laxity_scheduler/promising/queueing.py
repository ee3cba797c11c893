"""The place of a waiting job in the queue, and when each may expect to start."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal

from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import NO_NODES, ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.claims import deadline_in_force
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
