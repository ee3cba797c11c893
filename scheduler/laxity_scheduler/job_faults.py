"""The one door for errors about single Jobs: recorded here, and all other Jobs are served.

Each is counted and logged with its traceback. The same error may come in every cycle; it is logged
only when it differs from the last one about that Job at that stage.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
