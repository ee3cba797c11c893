"""Errors about single Jobs: logged with traceback, counted, and then ignored.

All other Jobs are served in the same cycle. The same error may come in every cycle; it is logged
only when it differs from the last one about that Job.
"""

import logging
from collections.abc import Callable
from typing import Final

LOG: Final = logging.getLogger(__name__)
MAX_REMEMBERED: Final = 10_000


def error_text(error: Exception) -> str:
    """The exception in a line: its type and its message."""
    return f"{type(error).__name__}: {error}"


class JobFaults:
    """Errors about single Jobs. `count` is called with the stage of each."""

    def __init__(self, count: Callable[[str], None] = lambda _stage: None) -> None:
        self._count = count
        self._last: dict[tuple[str, str], str] = {}

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
