"""What a user sees of the queue at a decision; each decision is one line of `queue.jsonl`."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from laxity.durable_files import append_to_file
from laxity_scheduler.chains.features import WINDOW
from laxity_scheduler.chains.snapshot_loop import RECENT_JOBS, recent_mean_s
from laxity_scheduler.following.link_queue import LinkQueue, QueueRow
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


JobStart = tuple[float, float]  # when a job started, and how long it had waited
Snapshot = tuple[float, list[float]]  # when it was taken, and its columns


class QueueWatch:
    """Looks at the queue; remembers the waits of jobs that were seen running, and a day of snapshots.

    What earlier processes saw is read back from the folder.
    """

    def __init__(self, queue: LinkQueue, folder: Path, clock: QueueClock | None = None) -> None:
        self._queue, self._clock = queue, clock or QueueClock()
        self._path = folder / "queue.jsonl"
        self.snapshots: list[Snapshot] = []
        self._starts: dict[str, JobStart] = {}
        self._new: dict[str, JobStart] = {}
        for line in _read_lines(self._path):
            self._move(line.get("jump_s", 0.0))
            self._add_starts(
                {job_id: (at, wait_s) for job_id, (at, wait_s) in line["starts"].items()}
            )
            self._add_snapshot(line.get("at", 0.0), line.get("columns", []))
            if line.get("clock"):
                self._clock.resume(line["at"], line["clock"])

    def look(
        self, planned_at: float | None = None, shape: SuccessorShape | None = None
    ) -> QueueFacts:
        """QueueError if the queue does not answer."""
        now_at = self._queue.clock_at()
        jump_s = self._clock.jump_s(now_at)
        self._move(jump_s)
        rows = self._clock.correct(self._queue.rows())
        self._clock.remember(rows)
        seen = {row.job_id: start for row in rows if (start := _start(row))}
        self._new |= {job_id: seen[job_id] for job_id in seen if job_id not in self._starts}
        self._add_starts(seen)
        mean_wait_s, waits_from = self._mean_wait(now_at)
        columns = []
        if shape is not None:
            columns = snapshot_queue(rows, self._starts.values(), now_at, shape).tolist()
        self._add_snapshot(now_at, columns)
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
            columns=columns,
            jump_s=jump_s,
        )

    def record(self, facts: QueueFacts, link: int, *, submits: bool, reason: str) -> None:
        """Write down the decision about this link's successor, and what it was made from."""
        decision = {"link": link, "submits": submits, "reason": reason}
        seen = {"starts": _latest(self._new), "clock": self._clock.mark}
        line = json.dumps({**asdict(facts), **decision, **seen})
        append_to_file(self._path, line.encode() + b"\n")
        self._new = {}

    def _move(self, jump_s: float) -> None:
        """What was seen before a jump of the clock, in the clock of now."""
        self._starts = {
            job_id: (started_at + jump_s, wait_s)
            for job_id, (started_at, wait_s) in self._starts.items()
        }
        self.snapshots = [(taken_at + jump_s, columns) for taken_at, columns in self.snapshots]

    def _add_starts(self, starts: dict[str, JobStart]) -> None:
        self._starts = _latest(self._starts | starts)

    def _add_snapshot(self, taken_at: float, columns: list[float]) -> None:
        if columns:
            self.snapshots = [*self.snapshots, (taken_at, columns)][-WINDOW:]

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


def _start(row: QueueRow) -> JobStart | None:
    if row.started_at is None or row.submitted_at is None:
        return None
    return row.started_at, max(0.0, row.started_at - row.submitted_at)


def _latest(starts: dict[str, JobStart]) -> dict[str, JobStart]:
    return dict(sorted(starts.items(), key=lambda entry: entry[1])[-RECENT_JOBS:])


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of decisions; one that a full disk cut short is left out."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            yield json.loads(text)
