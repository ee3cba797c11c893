"""SIGTERM, taken where it does no harm: in the user's code at once, in the middle of a save after it.

A worker that ends by itself with exit 0 completes its Job, so being told to stop must never look
like being done: the training ends by a BaseException, and the process with `EXIT_STOPPED`.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

EXIT_RESTART: Final = 75  # another worker was lost: start again
STEP_S: Final = 10.0  # a third of the grace that Kubernetes gives
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
        self._in_step = False
        self._process = 0  # that takes SIGTERM; 0: none does

    def install(self) -> None:
        """Take SIGTERM from now on. For a worker process only: a library leaves signals alone."""
        self._process = os.getpid()
        signal.signal(signal.SIGTERM, self._take_signal)

    @contextmanager
    def take_over(self) -> Iterator[None]:
        """Take SIGTERM meanwhile, also from a handler of the training code that would swallow it."""
        theirs = signal.getsignal(signal.SIGTERM)
        is_ours = theirs in (self._take_signal, None)  # None: not from Python, cannot be put back
        in_main = threading.current_thread() is threading.main_thread()
        if is_ours or not self._process or not in_main:
            yield
            return
        signal.signal(signal.SIGTERM, self._take_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, theirs)

    def _take_signal(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child of the training code: it ends as others do
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        first, self.asked = not self.asked, True
        if first and self._in_step:
            timer = threading.Timer(STEP_S, signal.raise_signal, [number])
            timer.daemon = True
            timer.start()
        elif first or self._in_step:
            self._in_step = False
            self.check()

    def ignore(self) -> None:
        """The result is out: from now on a SIGTERM changes nothing."""
        self._depth += 1

    def check(self) -> None:
        """Raise now if told to stop, unless inside `defer()` or a step."""
        if self.asked and not self._depth and not self._in_step:
            raise TrainingStopped(
                "SIGTERM: the training goes on from its checkpoint at the next start"
            )

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step after which the training can save: a SIGTERM waits for its end, at most STEP_S."""
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    @contextmanager
    def defer(self) -> Iterator[None]:
        """What must not be torn apart: a SIGTERM meanwhile is raised at the end."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self.check()
