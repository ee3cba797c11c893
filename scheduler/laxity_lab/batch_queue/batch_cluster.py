"""A batch cluster that plays its log again, with jobs of ours in between.

Instants are POSIX seconds outside and ticks of a minute inside: a submission counts from the minute
in which it falls, and a job holds its nodes until the full minute in which it ends. A job that
overran its time limit in the log is ended at the limit.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from laxity_lab.batch_queue.cluster_loop import advance, enqueue
from laxity_lab.batch_queue.queue_log import QueueLog
from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.choices import Start
from laxity_scheduler.chains.queue_plan import (
    ARRIVED,
    FREE,
    NEVER,
    NOBODY,
    NOW,
    RUNNING,
    STARTED,
    TICK_S,
    BatchState,
    Jobs,
    plan_start,
    ticks_of,
)
from laxity_scheduler.chains.snapshot_loop import take_snapshot
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.job import DAY_S

SPARE: Final = 2  # rows for jobs of ours
NODE_WEIGHT: Final = 100.0
AGE_WEIGHT: Final = 7_000.0
AGE_FULL_S: Final = 7 * DAY_S


def rank_jobs(nodes: Ints, submit: Ints, cluster_nodes: int) -> Floats:
    """Priority at tick 0; a job that is submitted later has its age still before it.

    As in Mirage's released simulator: NODE_WEIGHT times a job's share of the nodes, plus AGE_WEIGHT
    for each AGE_FULL_S of waiting, without an upper end.
    """
    per_tick = AGE_WEIGHT * TICK_S / AGE_FULL_S
    rank: Floats = NODE_WEIGHT / cluster_nodes * nodes - per_tick * submit
    return rank


@dataclass(slots=True)
class BatchCluster:
    """A simulation at one instant; `fork` makes a second one that goes its own way."""

    began_at: float
    nodes: int
    jobs: Jobs
    state: BatchState
    submitted: int = 0  # jobs of ours

    @property
    def now_at(self) -> float:
        return self.began_at + TICK_S * int(self.state.counts[NOW])

    def fork(self) -> "BatchCluster":
        """The same cluster at the same instant, apart from this one."""
        columns = {
            name: column.copy() for name, column in self.jobs._asdict().items() if name != "last"
        }
        state = BatchState(*(array.copy() for array in self.state))
        return replace(self, jobs=self.jobs._replace(**columns), state=state)

    def submit(self, nodes: int, limit_s: float, run_s: float) -> int:
        """Submit a job of ours now; its row. ValueError if it can never start."""
        if not 1 <= nodes <= self.nodes:
            message = f"a job of {nodes} nodes cannot start on {self.nodes}"
            raise ValueError(message)
        row = self.jobs.last + self.submitted
        self.submitted += 1
        now = int(self.state.counts[NOW])
        self.jobs.submit[row], self.jobs.nodes[row] = now, nodes
        self.jobs.run[row] = ticks_of(min(run_s, limit_s))
        self.jobs.limit[row] = ticks_of(limit_s)
        ours = slice(row, row + 1)
        columns = self.jobs.nodes[ours], self.jobs.submit[ours]
        self.jobs.rank[ours] = rank_jobs(*columns, self.nodes)
        enqueue(self.jobs, self.state, row)
        return row

    def run_until(self, instant: float) -> None:
        """Play on to the minute of this instant, which is not worked on yet."""
        tick = math.floor((instant - self.began_at) / TICK_S)
        advance(self.jobs, self.state, tick, NOBODY)

    def run_until_started(self, row: int) -> float:
        """Play on until this job starts; when that was, infinity if it never does."""
        advance(self.jobs, self.state, NEVER, row)
        return self.start_at(row)

    def plan_start_at(self, nodes: int, limit_s: float) -> float:
        """When a job submitted now would start by the scheduler's plan, as `sbatch --test-only`.

        The plan takes every job to run to its time limit and knows no later arrivals. Infinity
        where it finds no place within its window.
        """
        tick = plan_start(self.jobs, self.state, nodes, ticks_of(limit_s))
        return math.inf if tick == NEVER else self.began_at + TICK_S * tick

    def snapshot(self, nodes: int, limit_s: float) -> Floats:
        """The queue of now in numbers, as somebody sees it who may submit such a job."""
        return take_snapshot(self.jobs, self.state, nodes, ticks_of(limit_s))

    def start_at(self, row: int) -> float:
        tick = int(self.state.start[row])
        return math.inf if tick == NEVER else self.began_at + TICK_S * tick

    def waits(self) -> tuple[Floats, Floats]:
        """Of all jobs that started, in their order: instant of the start, and wait in seconds."""
        rows = self.state.started[: self.state.counts[STARTED]]
        start = self.state.start[rows]
        wait_s = TICK_S * (start - self.jobs.submit[rows]).astype(np.float64)
        return self.began_at + TICK_S * start.astype(np.float64), wait_s

    def play_out(self) -> Floats:
        """Play on until every job of the log has started; their waits in seconds, by row."""
        advance(self.jobs, self.state, NEVER, NOBODY)
        rows = slice(0, self.jobs.last)
        return TICK_S * (self.state.start[rows] - self.jobs.submit[rows]).astype(np.float64)


def open_cluster(
    log: QueueLog,
    began_at: float,
    nodes: int,
    *,
    start: Start = "running",
    until_at: float = math.inf,
) -> BatchCluster:
    """A cluster at `began_at` that plays the jobs submitted in [began_at, until_at].

    `running`: jobs of the log that ran then hold their nodes and jobs that waited then wait.
    `empty`: nobody runs and nobody waits. Jobs that are larger than the cluster are left out.
    """
    columns = log.columns
    later = arriving_jobs(log, began_at, nodes, until_at=until_at)
    before = (columns.nodes <= nodes) & (columns.submitted_at < began_at) & (start == "running")
    running = np.flatnonzero(
        before & (columns.started_at < began_at) & (columns.ended_at > began_at)
    )
    running = running[np.argsort(columns.started_at[running], kind="stable")]
    waiting = np.flatnonzero(before & (columns.started_at >= began_at))
    rows = np.concatenate((running, waiting, later))
    jobs = job_rows(log, rows, began_at, nodes)
    state = empty_state(len(jobs.submit), nodes)
    set_running(log, rows[: len(running)], began_at, jobs, state)
    state.counts[ARRIVED] = len(running)  # the loop admits who waits with the first arrivals
    return BatchCluster(began_at, nodes, jobs, state)


def arriving_jobs(
    log: QueueLog, began_at: float, nodes: int, *, until_at: float = math.inf
) -> Ints:
    """Which jobs of the log a cluster plays that are submitted in [began_at, until_at]."""
    columns = log.columns
    in_time = (columns.submitted_at >= began_at) & (columns.submitted_at <= until_at)
    return np.flatnonzero(in_time & (columns.nodes <= nodes))


def job_rows(log: QueueLog, rows: Ints, began_at: float, cluster_nodes: int) -> Jobs:
    """These jobs of the log, and spare rows."""
    columns = log.columns

    def pad(values: Floats) -> Ints:
        return np.concatenate((values, np.zeros(SPARE))).astype(np.int64)

    run_s = np.minimum(columns.ended_at - columns.started_at, columns.time_limit_s)[rows]
    submit = pad(np.floor((columns.submitted_at[rows] - began_at) / TICK_S))
    nodes = pad(columns.nodes[rows].astype(np.float64))
    return Jobs(
        submit=submit,
        run=pad(np.maximum(1, np.ceil(run_s / TICK_S))),
        limit=pad(np.maximum(1, np.ceil(columns.time_limit_s[rows] / TICK_S))),
        nodes=nodes,
        rank=rank_jobs(nodes, submit, cluster_nodes),
        last=len(rows),
    )


def empty_state(rows: int, nodes: int) -> BatchState:
    counts = np.zeros(6, dtype=np.int64)
    counts[FREE] = nodes
    pending, running, started = (np.zeros(rows, dtype=np.int64) for _ in range(3))
    return BatchState(pending, running, np.full(rows, NEVER, dtype=np.int64), started, counts)


def set_running(
    log: QueueLog, running: Ints, began_at: float, jobs: Jobs, state: BatchState
) -> None:
    """Let the first rows run since when they did, until when they ended."""
    columns, count = log.columns, len(running)
    start = np.floor((columns.started_at[running] - began_at) / TICK_S).astype(np.int64)
    end = np.ceil((columns.ended_at[running] - began_at) / TICK_S).astype(np.int64)
    state.start[:count] = start
    jobs.run[:count] = end - start
    state.running[:count] = state.started[:count] = np.arange(count)
    state.counts[RUNNING] = state.counts[STARTED] = count
    state.counts[FREE] -= int(jobs.nodes[:count].sum())
