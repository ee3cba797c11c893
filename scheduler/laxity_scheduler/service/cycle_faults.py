"""What fails in cycles: a whole one, or single Jobs while all others are served.

A single failed cycle may pass, three in a row raise an alarm. Errors about single Jobs are logged
with traceback, counted, and then ignored. The same error may come in every cycle; it is logged only
when it differs from the last one about that Job.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

LOG: Final = logging.getLogger(__name__)
ALARM_AFTER: Final = 3
MAX_REMEMBERED: Final = 10_000


def error_text(error: Exception) -> str:
    """The exception in a line: its type and its message."""
    return f"{type(error).__name__}: {error}"


class JobFaults:
    """Errors about single Jobs. `count` is called with the stage of each."""

    def __init__(self, count: Callable[[str], None] = lambda _stage: None) -> None:
        self._count = count
        self._last: dict[tuple[str, str], str] = {}

    @contextmanager
    def isolate(self, stage: str, job: str) -> Iterator[None]:
        """Record what is raised about this Job (its id or uid) at this stage, and go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - recorded with its traceback
            self.record_fault(stage, job, error)

    def record_fault(self, stage: str, job: str, error: Exception) -> None:
        """Record what was raised about this Job (its id or uid) at this stage of a cycle."""
        self._count(stage)
        text = error_text(error)
        if self._last.get((stage, job)) == text:
            return
        if len(self._last) >= MAX_REMEMBERED:
            self._last.clear()
        self._last[stage, job] = text
        message = f"{stage} of job {job}: {text}; all others are served"
        LOG.error("%s", message, exc_info=error, extra={"job": job})


@dataclass(slots=True)
class FailureStreak:
    """How many cycles failed in a row, why the last one did, and on which Job."""

    in_a_row: int = 0
    problem: str = ""
    job: str = ""

    @property
    def alarm(self) -> str:
        """What is wrong; "" while fewer than ALARM_AFTER cycles in a row have failed."""
        if self.in_a_row < ALARM_AFTER:
            return ""
        about = f", the last on job {self.job}" if self.job else ""
        return f"{self.in_a_row} cycles in a row have failed{about}: {self.problem}"

    def record_failure(self, problem: str, job: str) -> bool:
        """Count a failure; returns whether it is the one that raises the alarm."""
        self.in_a_row, self.problem, self.job = self.in_a_row + 1, problem, job
        return self.in_a_row == ALARM_AFTER

    def record_success(self) -> None:
        self.in_a_row, self.problem, self.job = 0, "", ""
