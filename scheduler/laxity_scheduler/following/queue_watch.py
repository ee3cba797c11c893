"""What a user sees of the queue at a decision; each decision is one line of `queue.jsonl`."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from laxity.durable_files import append_to_file
from laxity_scheduler.chains.baselines import recent_mean_s
from laxity_scheduler.chains.snapshot_loop import RECENT_JOBS
from laxity_scheduler.following.link_queue import ClusterQueue, QueueRow
from laxity_scheduler.following.queue_clock import QueueClock
from laxity_scheduler.following.queue_snapshot import SuccessorShape, snapshot_queue


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Counts, and what the methods ask.

    `at` is the controller's clock. `mean_wait_s` is of the last 100 started jobs, None without
    any; `planned_at` is when Slurm's plan would start the successor, None where nobody asked;
    `columns` is the snapshot for a model, empty without one; `jump_s` is by how much the clock has
    jumped since the last look.
    """

    at: float
    waiting: int
    waiting_nodes: int
    running: int
    running_nodes: int
    mean_wait_s: float | None
    waits_from: str
    planned_at: float | None
    columns: list[float] = field(default_factory=list)
    jump_s: float = 0.0


class QueueWatch:
    """Looks at the queue, and remembers the waits of jobs that were seen running."""

    def __init__(self, queue: ClusterQueue, folder: Path, clock: QueueClock | None = None) -> None:
        self._queue, self._clock = queue, clock or QueueClock()
        self._path = folder / "queue.jsonl"
        self._starts: dict[str, tuple[float, float]] = _load_starts(self._path)
        self._new: dict[str, tuple[float, float]] = {}
        for line in _read_lines(self._path):
            if line.get("clock"):
                self._clock.resume(line["at"], line["clock"])

    def look(
        self, planned_at: float | None = None, shape: SuccessorShape | None = None
    ) -> QueueFacts:
        """QueueError if the queue does not answer."""
        now_at = self._queue.clock_at()
        jump_s = self._clock.jump_s(now_at)
        self._starts = _move(self._starts, jump_s)
        rows = self._clock.correct(self._queue.rows())
        self._clock.remember(rows)
        fresh = {row.job_id: start for row in rows if (start := _start(row))}
        self._new |= {
            job_id: start for job_id, start in fresh.items() if job_id not in self._starts
        }
        self._starts = dict(_latest({**self._starts, **fresh}.items()))
        mean_wait_s, waits_from = self._mean_wait(now_at)
        starts = self._starts.values()
        waiting = [row for row in rows if not row.has_started]
        running = [row for row in rows if row.has_started]
        return QueueFacts(
            at=now_at,
            waiting=len(waiting),
            waiting_nodes=sum(row.nodes for row in waiting),
            running=len(running),
            running_nodes=sum(row.nodes for row in running),
            mean_wait_s=mean_wait_s,
            waits_from=waits_from,
            planned_at=planned_at,
            columns=[] if shape is None else snapshot_queue(rows, starts, now_at, shape).tolist(),
            jump_s=jump_s,
        )

    def record(self, facts: QueueFacts, link: int, *, submits: bool, reason: str) -> None:
        """Write down the decision about this link's successor, and what it was made from."""
        decision = {"link": link, "submits": submits, "reason": reason}
        starts = dict(_latest(self._new.items()))
        seen = {"starts": starts, "clock": self._clock.mark}
        line = json.dumps({**asdict(facts), **decision, **seen})
        append_to_file(self._path, line.encode() + b"\n")
        self._new = {}

    def _mean_wait(self, at: float) -> tuple[float | None, str]:
        rows, recorder = self._queue.past_rows()
        accounted = {
            row.job_id: start for row in self._clock.correct(rows) if (start := _start(row))
        }
        starts = sorted(
            start for start in ({**self._starts, **accounted}).values() if start[0] <= at
        )
        if not starts:
            return None, ""
        started_at, wait_s = np.array(starts, dtype=np.float64).T
        return recent_mean_s(started_at, wait_s, at), recorder if accounted else "seen running"


def _start(row: QueueRow) -> tuple[float, float] | None:
    """When the job started, and how long it had waited."""
    if row.started_at is None or row.submitted_at is None:
        return None
    return row.started_at, max(0.0, row.started_at - row.submitted_at)


def _latest(
    starts: Iterable[tuple[str, tuple[float, float]]],
) -> list[tuple[str, tuple[float, float]]]:
    return sorted(starts, key=lambda start: start[1])[-RECENT_JOBS:]


def _move(starts: dict[str, tuple[float, float]], jump_s: float) -> dict[str, tuple[float, float]]:
    """Starts from before a jump of the clock, in the clock of now."""
    return {key: (started_at + jump_s, wait_s) for key, (started_at, wait_s) in starts.items()}


def _load_starts(path: Path) -> dict[str, tuple[float, float]]:
    """What earlier looks saw."""
    starts: dict[str, tuple[float, float]] = {}
    for line in _read_lines(path):
        starts = _move(starts, line.get("jump_s", 0.0))
        starts |= {
            key: (started_at, wait_s) for key, (started_at, wait_s) in line["starts"].items()
        }
    return dict(_latest(starts.items()))


def load_snapshots(folder: Path) -> list[tuple[float, list[float]]]:
    """Instants and columns of earlier decisions with a model."""
    snapshots: list[tuple[float, list[float]]] = []
    for line in _read_lines(folder / "queue.jsonl"):
        snapshots = move_snapshots(snapshots, line.get("jump_s", 0.0))
        if line.get("columns"):
            snapshots.append((line["at"], line["columns"]))
    return snapshots


def move_snapshots(
    snapshots: Iterable[tuple[float, list[float]]], jump_s: float
) -> list[tuple[float, list[float]]]:
    """Snapshots from before a jump of the clock, in the clock of now."""
    return [(taken_at + jump_s, columns) for taken_at, columns in snapshots]


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of decisions; one that a full disk cut short is left out."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            yield json.loads(text)
