"""Files and folders for their owner alone, whatever the umask: what is in them holds secrets of Jobs.

The umask itself stays as the user has it: workers are started with it, and what they write is theirs.
"""

from pathlib import Path


def private_folder(path: Path) -> Path:
    """The folder, made with those above it that are missing; one that is there stays as it is."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def private_file(path: Path) -> Path:
    """The file, made empty if it is not there, with its folder."""
    private_folder(path.parent)
    if not path.exists():
        path.touch(mode=0o600)
    return path
