"""The iterator over a training's epochs. It tells whether code or an exception left its loop early.

Python closes an iterator in both cases and says nothing of the exception. What the frame of the
loop does at that instant tells them apart: `break` and `return` drop the iterator from the stack.
"""

import dis
import inspect
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from laxity.stderr import say
from laxity.worker.code.code_copy import is_installed

# Instructions that can let go of an iterator and raise nothing, of Python 3.11 to 3.14.
_DROPS: Final = frozenset(
    {
        "DELETE_DEREF", "DELETE_FAST", "DELETE_GLOBAL", "DELETE_NAME", "END_FOR", "FOR_ITER",
        "POP_ITER", "POP_TOP", "RETURN_CONST", "RETURN_VALUE", "STORE_DEREF", "STORE_FAST",
        "STORE_GLOBAL", "STORE_NAME",
    }
)  # fmt: skip
_WAITS: Final = frozenset({"RESUME", "YIELD_VALUE"})  # a generator around the loop, being closed
LEAST_S: Final = 0.001
SKIPPED_S: Final = (
    0.02  # after one that was not trained: in less, on a busy machine, the next is not
)
LEAST_SHARE: Final = 0.1  # of the longest epoch: in less time none is trained
OVER_IN_CALLBACK: Final = (
    "no epoch is left of {total}: next(epochs) in a callback returns the last one, and what is "
    "trained from here on is not counted"
)
OVER: Final = "no epoch is left of {total}: see training.done, or call next(epochs, None)"


class UnitTime:
    """When the epoch in flight began, and whether it was trained when its loop was left in it."""

    def __init__(self) -> None:
        self.left_at = 0.0  # monotonic, when the loop was left
        self._began = 0.0
        self._longest_s = 0.0
        self._always_logs = False  # each epoch of this process before has logged figures
        self._least_s = LEAST_S
        self._counts = False

    def begin(self) -> None:
        self._began = time.monotonic()

    def end(self, metrics: Mapping[str, float]) -> bool:
        """The epoch is over, and has logged these figures. Whether it can have been trained."""
        took_s = time.monotonic() - self._began
        self._always_logs = bool(metrics) and (self._always_logs or not self._longest_s)
        self._longest_s = max(self._longest_s, took_s, LEAST_S)
        is_trained = bool(metrics) or took_s >= self._least_s
        self._least_s = LEAST_S if is_trained else SKIPPED_S
        return is_trained

    def leave(self, metrics: Mapping[str, float], *, by_exception: bool = False) -> bool:
        """The loop is left, unless it was before. Whether the epoch counts that is in flight.

        It counts if it has logged figures. Where epochs log none, it counts if it took a time in
        which one is trained: a loop may be left at an epoch's beginning.
        """
        if not self.left_at:
            self.left_at = time.monotonic()
            least_s = max(LEAST_S, LEAST_SHARE * self._longest_s)
            is_long = not self._always_logs and self.left_at - self._began >= least_s
            self._counts = not by_exception and (bool(metrics) or is_long)
        return self._counts


class EpochLoop(Iterator[int]):
    """`on_left(by_exception)` is called when the loop is left, however that happens."""

    def __init__(
        self, epochs: Generator[int], on_left: Callable[[bool], None], *, total: int
    ) -> None:
        self._epochs, self._on_left, self._total = epochs, on_left, total
        self._driver: CodeType | None = None  # the code that asked for the latest epoch
        self._is_over = False

    def __next__(self) -> int:
        caller = sys._getframe(1)  # noqa: SLF001 - the only way to the caller
        self._driver = caller.f_code
        try:
            return next(self._epochs)
        except StopIteration:
            was_over, self._is_over = self._is_over, True
            if not was_over and _is_in_callback(caller):
                say(OVER_IN_CALLBACK.format(total=self._total))
                return self._total
            raise StopIteration(OVER.format(total=self._total)) from None

    def close(self) -> None:
        """Leave the loop, as `break` does."""
        self._leave(by_exception=False)

    def __del__(self) -> None:
        frame = sys._getframe().f_back  # noqa: SLF001 - None at the interpreter's end
        self._leave(by_exception=_is_raising(frame, self._driver))

    def _leave(self, *, by_exception: bool) -> None:
        on_left, self._on_left = self._on_left, lambda _: None
        on_left(by_exception)
        self._epochs.close()


def _is_in_callback(frame: FrameType) -> bool:
    """Whether a library called this function, which says `next(epochs)` and expects no StopIteration.

    Such a library decides itself when it has trained enough, and the exception would end it.
    """
    library, code, place = frame.f_back, dis.Bytecode(frame.f_code), frame.f_lasti
    if library is None or not is_installed(Path(library.f_code.co_filename)):
        return False
    entries: Iterable[Any] = code.exception_entries  # type: ignore[attr-defined]
    is_caught = any(entry.start <= place < entry.end for entry in entries)
    return not is_caught and _calls_next(list(code), place)


def _calls_next(steps: Sequence[dis.Instruction], place: int) -> bool:
    """Whether the instruction at this place is `next(iterator)`, without a default."""
    call = next(step for step in steps if step.offset == place)
    if (call.opname, call.arg) != ("CALL", 1):
        return False
    return any(step.argval == "next" and _begins_at(step) == _begins_at(call) for step in steps)


def _begins_at(step: dis.Instruction) -> tuple[int | None, int | None]:
    """Line and column of the expression that this instruction is of."""
    return (step.positions.lineno, step.positions.col_offset) if step.positions else (None, None)


def _is_raising(frame: FrameType | None, driver: CodeType | None) -> bool:
    """Whether an exception runs through the loop that `driver` is the code of.

    A loop whose function has returned is not on the stack any more: it did not raise.
    """
    if frame is None or driver is None:
        return False
    is_loop = frame.f_code is driver or bool(driver.co_flags & inspect.CO_GENERATOR)
    while frame.f_back is not None and _instruction(frame) in _WAITS:
        frame = frame.f_back
    return is_loop and _instruction(frame) not in _DROPS


def _instruction(frame: FrameType) -> str:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]
