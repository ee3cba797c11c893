"""Cycles that fail: a single one may pass, three in a row raise an alarm."""

from dataclasses import dataclass
from typing import Final

from laxity.safe_text import without_secrets

ALARM_AFTER: Final = 3


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
        self.in_a_row, self.problem, self.job = self.in_a_row + 1, without_secrets(problem), job
        return self.in_a_row == ALARM_AFTER

    def record_success(self) -> None:
        self.in_a_row, self.problem, self.job = 0, "", ""
