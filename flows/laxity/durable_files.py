"""Files that a crash leaves whole: the old content or the new, and on the disk."""

import os
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """Write a file of which no reader sees half, durable when this returns.

    OSError leaves the old one, or the new one where only its name could not be synced.
    """
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(descriptor)
        aside.replace(path)
        sync_path(path.parent)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def append_to_file(path: Path, content: bytes) -> None:
    """Append all of the content, durable when this returns, or with OSError none of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    before = os.fstat(descriptor).st_size
    try:
        with os.fdopen(os.dup(descriptor), "ab") as file:
            file.write(content)
        os.fsync(descriptor)
        if not before:
            sync_path(path.parent)
    except OSError:
        os.truncate(path, before)
        raise
    finally:
        os.close(descriptor)


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
