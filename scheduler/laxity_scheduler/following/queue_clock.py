"""A queue whose clock jumps: instants from before the jump are read in the clock of now.

The queue ends its jobs by its own clock, so that a running link's end is right as the queue tells it.
Waits are not: a job that was submitted before the jump and started after it has the jump in its wait.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from laxity_scheduler.following.link_queue import QueueRow

LEAST_S: Final = 150.0  # what is less may be the time that an answer took
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def awake_or_asleep_s() -> float:
    """Seconds that have passed, those in which this machine slept too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def read_boot_id() -> str:
    """Which start of this machine it is: the steady clock begins anew with each; empty if not told."""
    try:
        return BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


class QueueClock:
    """Compares the queue's clock with one that never jumps, and corrects rows by the difference."""

    def __init__(
        self, steady: Callable[[], float] = awake_or_asleep_s, boot_id: str | None = None
    ) -> None:
        self._steady = steady
        self._boot_id = read_boot_id() if boot_id is None else boot_id
        self._seen: tuple[float, float] | None = None
        self._gap: tuple[float, float, float] | None = None  # before this process: see _adopt
        self._has_looked = False
        self._rows: tuple[QueueRow, ...] = ()
        self._submits: dict[str, float] = {}
        self._starts: dict[str, float] = {}

    @property
    def mark(self) -> dict[str, Any]:
        """The steady clock at the last look, for a later process."""
        return {"boot": self._boot_id, "steady_s": self._seen[1] if self._seen else None}

    def resume(self, seen_at: float, mark: Mapping[str, Any]) -> None:
        """Go on from the last look of an earlier process, if it was since this machine's start."""
        if self._boot_id and mark.get("boot") == self._boot_id and mark.get("steady_s") is not None:
            self._seen = (seen_at, float(mark["steady_s"]))

    def jump_s(self, now_at: float) -> float:
        """By how much the clock has jumped forward since the last look; 0 if it has not."""
        before, self._seen = self._seen, (now_at, self._steady())
        is_first, self._has_looked = not self._has_looked, True
        if before is None:
            return 0.0
        jump_s = (now_at - before[0]) - (self._seen[1] - before[1])
        if abs(jump_s) < LEAST_S:
            return 0.0
        if is_first:
            self._gap = (before[0], now_at, jump_s)
        for row in self._rows:
            self._submits[row.job_id] = self._submits.get(row.job_id, 0.0) + jump_s
            if row.has_started:
                self._starts[row.job_id] = self._starts.get(row.job_id, 0.0) + jump_s
        return jump_s

    def correct(self, rows: Iterable[QueueRow]) -> list[QueueRow]:
        """These jobs, with instants that were noted before a jump moved by it."""
        rows = list(rows)
        if self._gap is not None:
            self._adopt(rows, *self._gap)
            self._gap = None
        return [self._correct(row) for row in rows]

    def _adopt(
        self, rows: Iterable[QueueRow], before_at: float, now_at: float, jump_s: float
    ) -> None:
        """Jobs that nobody saw before the jump, told by their instants.

        Instants between the last look and the jump look like later ones, and are left as they are.
        """

        def is_before(instant: float | None) -> bool:
            if instant is None:
                return False
            return instant <= before_at + min(0.0, jump_s) or instant > now_at

        for row in rows:
            if is_before(row.submitted_at):
                self._submits[row.job_id] = jump_s
                if is_before(row.started_at):
                    self._starts[row.job_id] = jump_s

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
