"""SIGTERM, taken where it does no harm: in the user's code at once, in the middle of a save after it.

A worker that ends by itself with exit 0 completes its Job, so being told to stop must never look
like being done: the training ends by a BaseException, and the process with `EXIT_STOPPED`.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

EXIT_RESTART: Final = 75  # another worker was lost: start again
EXIT_STOPPED: Final = 143  # what a shell shows for a process that SIGTERM ended


class TrainingStopped(BaseException):
    """This process was told to end; the training goes on from its checkpoint at the next start."""


class Superseded(BaseException):
    """Another worker 0 of this Job has begun: this one writes nothing any more and leaves."""


class BeginAnew(BaseException):
    """The workers change and the training holds no state: each process ends and starts again."""


class EndedWithout(BaseException):
    """The others have ended the training, and this worker has nothing that its code could go on with."""


class SigtermHandler:
    """Raises TrainingStopped once, in the main thread, and never inside `deferred()`."""

    def __init__(self) -> None:
        self.asked = False
        self._depth = 0

    def install(self) -> None:
        """Take SIGTERM from now on. For a worker process only: a library leaves signals alone."""
        signal.signal(signal.SIGTERM, self._take_signal)

    def _take_signal(self, _number: int, _frame: FrameType | None) -> None:
        first, self.asked = not self.asked, True
        if first:
            self.check()

    def ignore(self) -> None:
        """The result is out: from now on a SIGTERM changes nothing."""
        self._depth += 1

    def check(self) -> None:
        """Raise now if told to stop, unless inside `deferred()`."""
        if self.asked and not self._depth:
            raise TrainingStopped(
                "SIGTERM: the training goes on from its checkpoint at the next start"
            )

    @contextmanager
    def defer(self) -> Iterator[None]:
        """What must not be torn apart: a SIGTERM meanwhile is raised at the end."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self.check()
