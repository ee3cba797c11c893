"""The one door for errors about single Jobs: recorded here, and all other Jobs are served.

Each is counted and logged with its traceback. The same error may come in every cycle; it is logged
only when it differs from the last one about that Job at that stage. A service has one: its metrics
make it, the world and the profiler's history are handed it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from laxity.safe_text import without_secrets

LOG: Final = logging.getLogger(__name__)
MAX_REMEMBERED: Final = 10_000


def error_text(error: Exception) -> str:
    """The exception in a line: its type and its message, without logins in addresses."""
    return without_secrets(f"{type(error).__name__}: {error}")


class ObjectFaults:
    """Errors about single objects that are no Jobs: logged, and counted nowhere."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], str] = {}

    def record_fault(self, stage: str, key: str, error: Exception) -> None:
        """Log what was raised about this object at this stage of a cycle."""
        self._log_if_new(stage, key, error, {})

    def last_fault(self, stage: str, key: str) -> str:
        """What was recorded last of this object at this stage; "" for nothing."""
        return self._last.get((stage, key), "")

    def _log_if_new(
        self, stage: str, key: str, error: Exception, fields: Mapping[str, object]
    ) -> None:
        text = error_text(error)
        if self.last_fault(stage, key) == text:
            return
        if len(self._last) >= MAX_REMEMBERED:
            self._last.clear()
        self._last[stage, key] = text
        message = f"{stage} of {key}: {text}; all others are served"
        LOG.error("%s", message, exc_info=error, extra=fields)


class JobFaults(ObjectFaults):
    """Errors about single Jobs. `count` is called with the stage of each."""

    def __init__(self, count: Callable[[str], None] = lambda _stage: None) -> None:
        super().__init__()
        self._count = count

    @contextmanager
    def isolate(self, stage: str, job: str) -> Iterator[None]:
        """Record what is raised about this Job (its id or uid) at this stage, and go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - recorded with its traceback
            self.record_fault(stage, job, error)

    def record_fault(self, stage: str, key: str, error: Exception) -> None:
        """Count and log what was raised about this Job (its id or uid) at this stage of a cycle."""
        self._count(stage)
        self._log_if_new(stage, key, error, {"job": key})
