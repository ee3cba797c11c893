"""Counts what a training reads while it reads it: bytes per epoch predict epoch times."""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, TypeVar

Item = TypeVar("Item")
Count = Callable[[int], None]


class CountedFile(io.RawIOBase):
    """A file opened for reading that counts each byte it takes from the storage."""

    def __init__(self, path: Path, count: Count) -> None:
        super().__init__()
        self._file = path.open("rb", buffering=0)
        self._count = count

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: "bytearray | memoryview", /) -> int:  # type: ignore[override]
        got = self._file.readinto(buffer) or 0
        self._count(got)
        return got

    def close(self) -> None:
        self._file.close()
        super().close()


def open_counted(path: Path, mode: str, count: Count) -> IO[str] | IO[bytes]:
    """Open for reading, "rb" or "r"; anything else is a ValueError."""
    if mode not in ("r", "rt", "rb"):
        raise ValueError(f'mode {mode!r}: only reading is counted; use "rb" or "r"')
    buffered = io.BufferedReader(CountedFile(path, count), buffer_size=1 << 18)
    return buffered if mode == "rb" else io.TextIOWrapper(buffered, encoding="utf-8")


def count_items(items: Iterable[Item], count: Count) -> Iterator[Item]:
    """The same items, each counted with the bytes it holds."""
    for item in items:
        count(bytes_of(item))
        yield item


def bytes_of(item: object) -> int:
    """The bytes in arrays, tensors, texts and nested containers; 0 for what has none."""
    size = getattr(item, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(item, bytes | bytearray):
        return len(item)
    if isinstance(item, str):
        return len(item.encode())
    if isinstance(item, dict):
        return sum(bytes_of(value) for value in item.values())
    if isinstance(item, list | tuple):
        return sum(bytes_of(value) for value in item)
    return 0
