"""A queue whose clock jumps: instants from before the jump are read in the clock of now.

The queue ends its jobs by its own clock, so that a running link's end is right as the queue tells it.
Waits are not: a job that was submitted before the jump and started after it has the jump in its wait.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from laxity_scheduler.following.link_queue import QueueRow

LEAST_S: Final = 150.0  # what is less may be the time that an answer took


def awake_or_asleep_s() -> float:
    """Seconds that have passed, those in which this machine slept too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class QueueClock:
    """Compares the queue's clock with one that never jumps, and corrects rows by the difference."""

    def __init__(self, steady: Callable[[], float] = awake_or_asleep_s) -> None:
        self._steady = steady
        self._seen: tuple[float, float] | None = None
        self._rows: tuple[QueueRow, ...] = ()
        self._submits: dict[str, float] = {}
        self._starts: dict[str, float] = {}

    def jump_s(self, now_at: float) -> float:
        """By how much the clock has jumped forward since the last look; 0 if it has not."""
        before, self._seen = self._seen, (now_at, self._steady())
        if before is None:
            return 0.0
        jump_s = (now_at - before[0]) - (self._seen[1] - before[1])
        if abs(jump_s) < LEAST_S:
            return 0.0
        for row in self._rows:
            self._submits[row.job_id] = self._submits.get(row.job_id, 0.0) + jump_s
            if row.has_started:
                self._starts[row.job_id] = self._starts.get(row.job_id, 0.0) + jump_s
        return jump_s

    def correct(self, rows: Iterable[QueueRow]) -> list[QueueRow]:
        """The same jobs, with instants that were noted before a jump moved by it."""
        return [self._correct(row) for row in rows]

    def remember(self, rows: Iterable[QueueRow]) -> None:
        """Jobs that are there now: those of them that are still there after a jump are moved."""
        self._rows = tuple(rows)
        there = {row.job_id for row in self._rows}
        self._submits = {key: value for key, value in self._submits.items() if key in there}
        self._starts = {key: value for key, value in self._starts.items() if key in there}

    def _correct(self, row: QueueRow) -> QueueRow:
        submit_s, start_s = self._submits.get(row.job_id), self._starts.get(row.job_id, 0.0)
        if submit_s is None:
            return row
        return replace(
            row,
            submitted_at=None if row.submitted_at is None else row.submitted_at + submit_s,
            started_at=None if row.started_at is None else row.started_at + start_s,
        )
