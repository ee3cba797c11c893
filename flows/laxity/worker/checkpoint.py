"""Checkpoints that a kill at any instant cannot spoil: written aside, then renamed when finished.

A checkpoint is a folder `epoch-00000007` with the state's files and `finished`, a JSON note written
last that names every file with its size and CRC. Whatever lacks the note or differs from it is
passed over. Only worker 0 writes; the two newest are kept.
"""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from laxity.durable_files import sync_path

FINISHED: Final = "finished"
KEPT: Final = 2
_NAME: Final = "epoch-{:08d}"
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


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one job."""

    folder: Path

    def write(
        self, epoch: int, *, fill: Callable[[Path], None], note: Mapping[str, Any] | None = None
    ) -> int:
        """Let `fill` write the state into an empty folder, make it durable; the bytes written."""
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
            self._put_folder(aside, self.folder / _NAME.format(epoch))
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
        for path in self._epoch_folders():
            checkpoint = _read_checkpoint(path)
            if checkpoint is not None:
                return checkpoint
        return None

    def at(self, epoch: int) -> Checkpoint | None:
        """The one of this epoch, if it is finished and undamaged."""
        return _read_checkpoint(self.folder / _NAME.format(epoch))

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
        return sorted(self.folder.glob("epoch-" + "[0-9]" * 8), reverse=True)

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
