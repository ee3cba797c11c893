"""A folder whose disk is recorded: what is left of it if the power fails after any of its steps.

Only `fsync` makes a file's content, or the names in a folder, durable. Of the rest a file system may
keep what it likes, so two disks are left at each step: one has no name and no content that was not
synced, the other has all names, and files are as they were last synced, or empty.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

STEPS: Final = ("fsync", "mkdir", "rename", "replace", "rmdir", "unlink")


class Entry(NamedTuple):
    name: str
    inode: int
    is_folder: bool


class RecordingDisk:
    """Calls `look` with what is left of `folder`, after each of its steps and of `step()`."""

    def __init__(self, folder: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._images, self._number, self.looks = folder, images, 0, 0
        self._contents: dict[int, bytes] = {}
        self._entries: dict[int, list[Entry]] = {folder.stat().st_ino: _entries_of(folder)}
        self._held: list[int] = []  # so that no inode's number is used twice
        self._look: Callable[[Path], None] | None = None
        for name in STEPS:
            monkeypatch.setattr(os, name, self._recorded(name, getattr(os, name)))

    def at_each_step(self, look: Callable[[Path], None]) -> None:
        self._look = look

    def step(self) -> None:
        """Look at what is left now. Steps of the look itself are not recorded."""
        look, self._look = self._look, None
        if look is not None:
            for image in self._lose_power():
                self.looks += 1
                look(image)
        self._look = look

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)

    def _recorded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def record(*arguments: Any, **options: Any) -> None:
            call(*arguments, **options)
            if self._look is None:
                return
            if name == "fsync":
                self._keep(*arguments)
            self.step()

        return record

    def _keep(self, descriptor: int) -> None:
        self._held.append(os.dup(descriptor))
        path, status = Path(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            entries = _entries_of(path)
            self._entries[status.st_ino] = entries
            self._held += [os.open(path / entry.name, os.O_RDONLY) for entry in entries]
        else:
            self._contents[status.st_ino] = path.read_bytes()

    def _lose_power(self) -> Iterator[Path]:
        for entries in (self._entries, dict(_walk(self.folder))):
            self._number += 1
            image = self._images / str(self._number)
            self._draw(self.folder.stat().st_ino, image, entries)
            yield image

    def _draw(self, inode: int, image: Path, entries: Mapping[int, list[Entry]]) -> None:
        image.mkdir(parents=True)
        for entry in entries.get(inode, ()):
            place = image / entry.name
            if entry.is_folder:
                self._draw(entry.inode, place, entries)
            else:
                place.write_bytes(self._contents.get(entry.inode, b""))


def _walk(folder: Path) -> Iterator[tuple[int, list[Entry]]]:
    entries = _entries_of(folder)
    yield folder.stat().st_ino, entries
    for entry in entries:
        if entry.is_folder:
            yield from _walk(folder / entry.name)


def _entries_of(folder: Path) -> list[Entry]:
    with os.scandir(folder) as entries:
        return [Entry(entry.name, entry.inode(), entry.is_dir()) for entry in entries]
