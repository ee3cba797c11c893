"""A copy of the training's code, made at submission, from which a frozen job imports (`freeze=True`).

The copy of `/home/me/project/train.py` is `COPY/home/me/project/train.py`. Copied is what Python
imports from the folders of the import path, and small files beside it, such as a configuration. All
else (data, virtual environments, folders without code) is a link to the original. So files that the
code finds by its own path are there, and a folder of results is never inside the copy. The working
directory stays the submitter's.
"""

import functools
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Final

from laxity import names
from laxity.job.qos import QoSError

SMALL_BYTES: Final = 1 << 20  # of a file that is no code
MOST_BYTES: Final = 256 << 20
MOST_FILES: Final = 100_000  # looked at, so that a home folder is an error and no long wait
_CODE: Final = tuple(all_suffixes())
_INSTALLED: Final = frozenset({"site-packages", "dist-packages", "node_modules"})


def copy_code(roots: Iterable[Path], into: Path) -> None:
    """Copy the code of these folders; QoSError if they hold too much. Python's own are left out."""
    folders = sorted(filter(_is_project, {root.absolute() for root in roots}))
    outermost = [
        folder for folder in folders if not any(other in folder.parents for other in folders)
    ]
    copying = _Copying()
    try:
        for folder in outermost:
            copying.copy_folder(folder, _copy_of(folder, into))
    except OSError as error:
        shutil.rmtree(into, ignore_errors=True)
        raise QoSError("freeze", f"the code cannot be copied: {error}") from error
    except QoSError:
        shutil.rmtree(into, ignore_errors=True)
        raise


class _Copying:
    """What was looked at and copied so far, over all folders of one copy."""

    def __init__(self) -> None:
        self._files = self._bytes = 0

    def copy_folder(self, source: Path, target: Path) -> bool:
        """Copy a folder that holds code, itself or below; False, and nothing made, for others."""
        entries = sorted(os.scandir(source), key=lambda entry: entry.name)
        self._files += len(entries)
        if self._files > MOST_FILES:
            raise QoSError(
                "freeze",
                f"{source} and the folders before it hold more than {MOST_FILES:,} files: submit "
                "from the folder of your code, and keep data elsewhere",
            )
        copied = {
            entry.name
            for entry in entries
            if _may_hold_code(entry) and self.copy_folder(Path(entry), target / entry.name)
        }
        if not copied and not any(_is_code(entry) for entry in entries):
            return False
        target.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            if entry.name not in copied and entry.name != "__pycache__":
                self._copy_or_link(entry, target / entry.name)
        return True

    def _copy_or_link(self, entry: "os.DirEntry[str]", target: Path) -> None:
        size = entry.stat().st_size if entry.is_file() else 0
        is_small = size <= SMALL_BYTES and not entry.name.startswith(".")
        if not entry.is_file() or not (is_small or _is_code(entry)):
            target.symlink_to(Path(entry).absolute())
            return
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise QoSError("freeze", f"more than {MOST_BYTES >> 20} MiB of code, at {entry.path}")
        shutil.copy2(entry.path, target)


def _is_project(folder: Path) -> bool:
    return folder.is_dir() and not is_installed(folder)


def is_installed(path: Path) -> bool:
    """Whether it belongs to Python or to an installed package."""
    return path.is_relative_to(_library()) or not _INSTALLED.isdisjoint(path.parts)


@functools.cache
def _library() -> str:
    """The folder of Python's own modules: asked once, since each question takes milliseconds."""
    return sysconfig.get_path("stdlib")


def _is_code(entry: "os.DirEntry[str]") -> bool:
    return entry.is_file() and entry.name.endswith(_CODE)


def _may_hold_code(entry: "os.DirEntry[str]") -> bool:
    """Whether to look into it: no link, hidden folder, virtual environment or installed package."""
    if not entry.is_dir(follow_symlinks=False) or entry.name.startswith((".", "__pycache__")):
        return False
    return entry.name not in _INSTALLED and not Path(entry, "pyvenv.cfg").exists()


def _copy_of(path: Path, copy: Path) -> Path:
    return copy / path.absolute().relative_to("/")


def in_copy(path: Path) -> Path:
    """Where this process imports from instead of this path: the same path, or its copy."""
    copy = os.environ.get(names.ENV_CODE)
    if not copy:
        return path
    copied = _copy_of(path, Path(copy))
    return copied if copied.exists() else path


def import_from_copy(entry: str) -> str:
    """Import from the copy from now on, here and in child processes; the entry as found there.

    FileNotFoundError if the job is frozen and its copy is gone.
    """
    copy = os.environ.get(names.ENV_CODE)
    if not copy:
        return entry
    if not Path(copy).is_dir():
        raise FileNotFoundError(f"the copy of this job's code is gone ({copy}): submit it again")
    sys.path[:] = [str(in_copy(Path(folder))) for folder in sys.path]
    if inherited := os.environ.get("PYTHONPATH"):
        folders = map(Path, filter(None, inherited.split(os.pathsep)))
        os.environ["PYTHONPATH"] = os.pathsep.join(str(in_copy(folder)) for folder in folders)
    place, _, function = entry.rpartition(":")
    return f"{in_copy(Path(place))}:{function}" if place.endswith(".py") else entry
