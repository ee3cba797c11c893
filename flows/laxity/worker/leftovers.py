"""The end of a worker process whose training has ended: nothing of the training code outlives it.

Python waits for threads that are no daemons, and multiprocessing for its children. Either would hold
the worker's GPUs after its result.
"""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from laxity.stderr import flush_output, say
from laxity.worker.launcher import processes_below

PATIENCE_S: Final = 5.0
LONGEST_COMMAND: Final = 80


def leave(code: int) -> NoReturn:
    """End this process as Python does, with all exit hooks; after five seconds at once."""
    threading.Thread(target=_end_late, args=(code,), name="laxity-leave", daemon=True).start()
    sys.exit(code)


def _end_late(code: int) -> None:
    time.sleep(PATIENCE_S)
    say(f"the training has ended; {PATIENCE_S:g} s later {_name_alive()}: the worker ends now")
    flush_output()
    os._exit(code)


def _name_alive() -> str:
    threads = [
        f"thread {thread.name!r} runs"
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    children = [f"process {pid} runs ({_command(pid)})" for pid in processes_below(os.getpid())]
    return ", ".join([*threads, *children]) or "an exit hook runs"


def _command(pid: int) -> str:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return " ".join(words).strip()[:LONGEST_COMMAND]
    return ""
