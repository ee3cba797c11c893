"""Checkpoints that a kill at any instant cannot spoil: written aside, then renamed when finished.

A checkpoint is a folder `epoch-00000007` with the state's files and `finished`, a JSON note written
last that names every file with its size and CRC. Whatever lacks the note or differs from it is
passed over. Only worker 0 writes; the two newest are kept. One that was saved inside the epoch after it
has the number of that epoch's steps in its name, too: `epoch-00000007-00000123`.
"""

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from laxity.durable_files import sync_path

FINISHED: Final = "finished"
KEPT: Final = 2
_NAME: Final = "epoch-{:08d}"
_NAMES: Final = re.compile(r"epoch-\d{8}(-\d{8})?")
_ASIDE: Final = ".writing-"
_CHUNK_BYTES: Final = 1 << 20


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; earlier ones are as they were."""


class CheckpointNotWrittenError(CheckpointError):
    """The file system did not take a checkpoint now; it may take the next one."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A finished one. `note` is what was stored beside the state."""

    epoch: int
    path: Path
    note: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Steps of the next epoch that are done, too."""
        return int(self.path.name[15:] or 0)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one job."""

    folder: Path

    def write(
        self,
        epoch: int,
        *,
        fill: Callable[[Path], None],
        note: Mapping[str, Any] | None = None,
        step: int = 0,
    ) -> int:
        """Let `fill` write the state into an empty folder, make it durable; the bytes written.

        `step`: so many steps of the next epoch are done, too.
        """
        aside = self.folder / f"{_ASIDE}{epoch:08d}-{os.getpid()}"
        try:
            self._clear_folder(aside)
            aside.mkdir(parents=True)
            fill(aside)
            files = {
                path.relative_to(aside).as_posix(): _flush_file(path)
                for path in _files_below(aside)
            }
            text = json.dumps({"epoch": epoch, "files": files, "note": dict(note or {})})
            (aside / FINISHED).write_text(text, encoding="utf-8")
            _flush_file(aside / FINISHED)
            for part in (*(path for path in aside.rglob("*") if path.is_dir()), aside):
                sync_path(part)
            name = _NAME.format(epoch) + (f"-{step:08d}" if step else "")
            self._put_folder(aside, self.folder / name)
        except OSError as error:
            raise CheckpointNotWrittenError(
                f"checkpoint of epoch {epoch} could not be written to {self.folder}: "
                f"{error.strerror or error}; the last finished one is untouched"
            ) from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        self._keep_newest()
        return sum(size for size, _ in files.values())

    def newest(self) -> Checkpoint | None:
        """The newest finished and undamaged one."""
        return _first_undamaged(self._epoch_folders())

    def at(self, epoch: int) -> Checkpoint | None:
        """The newest of this epoch that is finished and undamaged."""
        name = _NAME.format(epoch)
        return _first_undamaged(path for path in self._epoch_folders() if path.name[:14] == name)

    def sweep(self) -> None:
        """Remove what a killed process left half written."""
        for path in self.folder.glob(f"{_ASIDE}*"):
            shutil.rmtree(path, ignore_errors=True)

    def drop_finished(self) -> None:
        """Remove the finished ones, of which none is of use: newer ones would give way to them."""
        for path in self._epoch_folders():
            if _read_checkpoint(path) is not None:
                self._clear_folder(path)

    def _epoch_folders(self) -> list[Path]:
        names_ = (path for path in self.folder.glob("epoch-*") if _NAMES.fullmatch(path.name))
        return sorted(names_, reverse=True)

    def _put_folder(self, aside: Path, place: Path) -> None:
        """Rename into place. One of the same epoch there is a damaged or an equal one."""
        if place.exists():
            self._clear_folder(place)
        aside.rename(place)
        sync_path(self.folder)

    def _keep_newest(self) -> None:
        """Unfinished folders do not count as kept, and are removed once newer ones are finished."""
        finished = [path for path in self._epoch_folders() if (path / FINISHED).is_file()]
        for path in self._epoch_folders():
            if path not in finished[:KEPT] and finished and path < finished[0]:
                self._clear_folder(path)

    @staticmethod
    def _clear_folder(path: Path) -> None:
        (path / FINISHED).unlink(missing_ok=True)  # first, so that a kill leaves no half as a whole
        shutil.rmtree(path, ignore_errors=True)


def _first_undamaged(paths: Iterable[Path]) -> Checkpoint | None:
    checkpoints = map(_read_checkpoint, paths)
    return next((checkpoint for checkpoint in checkpoints if checkpoint is not None), None)


def _read_checkpoint(path: Path) -> Checkpoint | None:
    try:
        document = json.loads((path / FINISHED).read_text(encoding="utf-8"))
        for name, (size, crc) in document["files"].items():
            if (path / name).stat().st_size != size or _file_crc(path / name) != crc:
                return None
        return Checkpoint(int(document["epoch"]), path, document["note"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _files_below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _flush_file(path: Path) -> tuple[int, int]:
    """Flush a file to the disk; its size and CRC."""
    sync_path(path)
    return path.stat().st_size, _file_crc(path)


def _file_crc(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = zlib.crc32(chunk, crc)
    return crc
