"""The folder of a chain: the user's script or manifest, and who follows the chain.

One process follows a chain. It holds `provisioner.lock`, and so does each sbatch that it starts: a
second one cannot ask the queue while a submission of the first is still under way.
"""

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from laxity.durable_files import replace_file
from laxity_scheduler.following.chain_state import ChainState, load_chain, save_chain
from laxity_scheduler.following.link_queue import QueueError

PATIENCE_S: Final = 10.0  # for an sbatch that outlived a killed process
LOOK_S: Final = 0.1
T = TypeVar("T")


def open_chain(text: str, folder: Path) -> ChainState:
    """The chain of this script or manifest in this folder, begun if there is none.

    ValueError if it was begun with another one.
    """
    (folder / "links").mkdir(parents=True, exist_ok=True)
    state, script_copy = load_chain(folder), folder / "script"
    if state is not None and script_copy.read_bytes() != text.encode():
        raise ValueError(f"the chain in {folder} has another script: name another --folder")
    if state is None:
        replace_file(script_copy, text)
        script_copy.chmod(0o755)
        state = ChainState(secrets.token_hex(4), str(Path.cwd()))
        save_chain(state, folder)
    return state


def read_script(script: Path, parse: Callable[[str], T]) -> tuple[str, T]:
    """The text, and what `parse` reads in it.

    ValueError if there is no such file, if it is no text, or if it cannot be a link.
    """
    try:
        text = script.read_bytes().decode()
        return text, parse(text)
    except OSError as error:
        raise ValueError(f"{script}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{script}: not a text file") from error
    except ValueError as error:
        raise ValueError(f"{script}: {error}") from error


@contextmanager
def hold_chain(folder: Path) -> Iterator[int]:
    """Be the one process that follows the chain; the descriptor holds the lock.

    The folder is made if there is none, and goes again if its first link was refused. ValueError if
    another process still follows the chain after some seconds.
    """
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = _lock(folder)
    try:
        yield descriptor
    except (ValueError, QueueError):
        if absent and not _has_begun(folder):
            _remove(absent)
        raise
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> int:
    end_at = time.monotonic() + PATIENCE_S
    while True:
        descriptor = os.open(folder / "provisioner.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return descriptor
        if time.monotonic() > end_at:
            raise ValueError(f"another laxity chain follows {folder}: --status shows how far it is")
        time.sleep(LOOK_S)


def _has_begun(folder: Path) -> bool:
    """Whether a job was submitted for it."""
    state = load_chain(folder)
    return state is not None and any(link.job_id for link in state.links)


def _remove(absent: list[Path]) -> None:
    """The chain's folder, and the folders above it that were made for it and hold nothing else."""
    shutil.rmtree(absent[0])
    with suppress(OSError):
        for path in absent[1:]:
            path.rmdir()
