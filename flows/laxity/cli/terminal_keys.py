"""Single keys of a terminal, without Enter; where there is no terminal, only time passes."""

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator

KeyReader = Callable[[float], str]


@contextlib.contextmanager
def reading_keys() -> Iterator[KeyReader]:
    """A function that waits so many seconds for a key; "" if none was pressed.

    Control-C interrupts as ever. The terminal is as before at the end.
    """
    if not sys.stdin.isatty():
        yield _wait
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield lambda seconds: _read_key(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _read_key(descriptor: int, seconds: float) -> str:
    ready, _, _ = select.select([descriptor], [], [], seconds)
    return os.read(descriptor, 16).decode(errors="replace") if ready else ""
