"""The folder of a chain: the user's script or manifest, and who follows the chain.

One process follows a chain. It holds `provisioner.lock`, and so does each sbatch that it starts: a
second one cannot ask the queue while a submission of the first is still under way.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from laxity.durable_files import replace_file
from laxity_scheduler.following.chain_state import ChainState, load_chain, save_chain

PATIENCE_S: Final = 10.0  # for an sbatch that outlived a killed process
LOOK_S: Final = 0.1


def open_chain(script: Path, folder: Path, check: Callable[[str], object]) -> ChainState:
    """The chain of this folder, begun if there is none.

    ValueError if the script cannot be a link (`check` says why), or the chain was begun with another
    one.
    """
    text = read_script(script)
    try:
        check(text)
    except ValueError as error:
        raise ValueError(f"{script}: {error}") from error
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


def read_script(script: Path) -> str:
    """ValueError if there is no such file, or if it is no text."""
    try:
        return script.read_bytes().decode()
    except OSError as error:
        raise ValueError(f"{script}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{script}: not a text file") from error


@contextmanager
def hold_chain(folder: Path) -> Iterator[int]:
    """Be the one process that follows the chain; the descriptor holds the lock.

    ValueError if another one still does after some seconds.
    """
    descriptor = os.open(folder / "provisioner.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor, folder)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    end_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_at:
                message = f"another laxity chain follows {folder}: --status shows how far it is"
                raise ValueError(message) from None
            time.sleep(LOOK_S)
        else:
            return
