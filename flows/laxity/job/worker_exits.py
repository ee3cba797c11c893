"""What the exit code of a worker that failed says: of another start, and of a signal."""

import signal
from typing import Final

SIGNALLED: Final = 128  # above it an exit code is that of a shell for a signal
MEANINGS: Final = {
    "SIGINT": "interrupted",
    "SIGKILL": "killed from outside, often by the memory limit",
}

USAGE: Final = 2  # the worker cannot even be started
FINAL_CODES: Final = (1, USAGE)  # it would fail, too
EXIT_RAISED: Final = 70  # the training function raised: it may get further


def signal_text(number: int) -> str:
    """The signal's name, with what it mostly means; "" if it has none, as one of real time."""
    name = next((each.name for each in signal.Signals if each == number), "")
    return f"{name}: {MEANINGS[name]}" if name in MEANINGS else name
