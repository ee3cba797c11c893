"""A snapshot of a real queue with the columns that a model was trained on.

The queue becomes the state of a simulated cluster of the size that the model was trained on, at the
tick of now, and the simulation's own `take_snapshot` reads it. So the planned wait is the one of the
simulated plan, in order of submission: the site's own priorities are not seen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.queue_plan import (
    FREE,
    NEVER,
    NOW,
    PENDING,
    RUNNING,
    STARTED,
    TICK_S,
    BatchState,
    Jobs,
    ticks_of,
)
from laxity_scheduler.chains.snapshot_loop import take_snapshot
from laxity_scheduler.following.link_queue import QueueRow
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.job import DAY_S

LONGEST_S: Final = 14 * DAY_S  # a job without a time limit counts as one of two weeks


@dataclass(frozen=True, slots=True)
class SuccessorShape:
    """What is to be submitted, and the cluster that it is planned on."""

    cluster_nodes: int
    nodes: int
    limit_s: float


def snapshot_queue(
    rows: Iterable[QueueRow],
    starts: Iterable[tuple[float, float]],
    now_at: float,
    shape: SuccessorShape,
) -> Floats:
    """The columns of now, (COLUMNS,). `starts` has (start, wait) of the last started jobs."""
    dated_rows = [row for row in rows if row.submitted_at is not None]
    waiting = sorted((row for row in dated_rows if not row.has_started), key=_submission_instant)
    running = [row for row in dated_rows if row.has_started]
    recent = sorted(starts)
    submitted = [_submission_instant(row) for row in waiting + running]
    submitted += [started_at - wait_s for started_at, wait_s in recent]
    started = [row.started_at or now_at for row in running]
    started += [started_at for started_at, _ in recent]
    start = np.full(len(submitted), NEVER, dtype=np.int64)
    start[len(waiting) :] = _ticks(started, now_at)
    limits = [min(row.time_limit_s, LONGEST_S) for row in waiting + running] + [TICK_S] * len(
        recent
    )
    jobs = Jobs(
        submit=_ticks(submitted, now_at),
        run=np.ones(len(submitted), dtype=np.int64),
        limit=np.ceil(np.array(limits, dtype=np.float64) / TICK_S).astype(np.int64),
        nodes=np.array(
            [row.nodes for row in waiting + running] + [1] * len(recent), dtype=np.int64
        ),
        rank=np.zeros(len(submitted)),
        last=len(submitted),
    )
    state = _state(start, len(waiting), len(running), len(recent))
    state.counts[FREE] = shape.cluster_nodes - sum(row.nodes for row in running)
    return take_snapshot(jobs, state, shape.nodes, ticks_of(shape.limit_s))


def _state(start: Ints, waiting: int, running: int, recent: int) -> BatchState:
    """Rows are in this order: those that wait, those that run, the starts before."""
    counts = np.zeros(6, dtype=np.int64)
    counts[NOW], counts[PENDING], counts[RUNNING], counts[STARTED] = 0, waiting, running, recent
    rows = np.arange(len(start), dtype=np.int64)
    before = waiting + running
    return BatchState(rows[:waiting], rows[waiting:before], start, rows[before:], counts)


def _submission_instant(row: QueueRow) -> float:
    return row.submitted_at or 0.0


def _ticks(instants: Sequence[float], now_at: float) -> Ints:
    return np.floor((np.array(instants, dtype=np.float64) - now_at) / TICK_S).astype(np.int64)
