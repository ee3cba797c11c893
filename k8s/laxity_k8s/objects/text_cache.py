"""What was read of texts that come again: those used last, as many as fit into some bytes.

Texts on Jobs are written by anybody, and a count alone bounds nothing, as each may be large.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final, Generic, TypeVar

Made = TypeVar("Made")
ENTRY_BYTES: Final = 600  # of the table, and of what is read even of a short text
CHARACTER_BYTES: Final = 12  # at most, of what is read of one: `[1.5,2],` makes a tuple and a float


def size_of(text: str) -> int:
    """At most how many bytes a text takes with what is read of it, on a 64-bit machine."""
    return ENTRY_BYTES + sys.getsizeof(text) + CHARACTER_BYTES * len(text)


class TextCache(Generic[Made]):
    """Calls `read` once for each text that is kept. Safe for threads."""

    def __init__(self, read: Callable[[str], Made], most_bytes: int) -> None:
        self._read, self._most_bytes = read, most_bytes
        self._lock, self._bytes = Lock(), 0
        self._kept: OrderedDict[str, Made] = OrderedDict()

    def __call__(self, text: str) -> Made:
        """What is read of the text."""
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text]
        made = self._read(text)
        with self._lock:
            self._keep_value(text, made)
        return made

    def _keep_value(self, text: str, made: Made) -> None:
        if text in self._kept or size_of(text) > self._most_bytes:
            return
        self._kept[text] = made
        self._bytes += size_of(text)
        while self._bytes > self._most_bytes:
            self._bytes -= size_of(self._kept.popitem(last=False)[0])
