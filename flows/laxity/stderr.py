"""What laxity itself says in the middle of a user's output: one line, marked, on stderr.

A training may have put streams of its own in the place of both, and closed them: no end of it.
"""

import sys
from contextlib import suppress
from typing import Final

from laxity.safe_text import without_secrets

MARK: Final = "laxity: "
_UNUSABLE: Final = (ValueError, AttributeError, OSError)  # closed, None, gone


def say(text: str) -> None:
    write_out(f"{MARK}{text}\n")


def write_out(text: str) -> None:
    """Write this where somebody reads it, without secrets."""
    for stream in (sys.stderr, sys.__stderr__):
        with suppress(*_UNUSABLE):
            stream.write(without_secrets(text))  # type: ignore[union-attr]
            stream.flush()  # type: ignore[union-attr]
            return


def flush_output() -> None:
    """Let out what was printed, where it can be."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(*_UNUSABLE):
            stream.flush()
