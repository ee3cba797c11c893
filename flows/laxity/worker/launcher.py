"""What torchrun would do for a worker: its rank, its group and where to meet, before its function is called.

Accelerate, Transformers, Lightning and DeepSpeed read RANK, WORLD_SIZE, MASTER_ADDR and the like as they
start, and cannot change them later. So with `launcher="torch"` the workers meet first, and at a change of
width each of them begins anew in its own process, from the checkpoint. Each worker sees only GPUs of its
own: it is the one process of its node.
"""

import os
import random
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from laxity import names
from laxity.stderr import flush_output, say

PORTS: Final = range(20_000, 30_000)  # none that the system gives to outgoing connections
VARIABLES: Final = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
)  # fmt: skip


def set_variables(*, rank: int, width: int, host: str, port: int, run: str) -> None:
    """Let this process be one of `width`, each the only one of its node, as torchrun says it."""
    values = (rank, width, 0, 1, rank, width, host, port, run)
    os.environ |= {name: str(value) for name, value in zip(VARIABLES, values, strict=True)}


def free_port() -> int:
    """A port that nobody listens on now; OSError if none of a hundred is free."""
    anywhere = random.SystemRandom()
    for _ in range(100):
        port = anywhere.choice(PORTS)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("", port))
            return port
    raise OSError(f"no port of {PORTS.start} to {PORTS.stop} is free for the workers to meet")


def is_anew() -> bool:
    """Whether this process has begun anew, asked once."""
    return bool(os.environ.pop(names.ENV_ANEW, ""))


def start_anew(why: str) -> NoReturn:
    """Run this worker from its beginning, as the same process: the pod and its place stay.

    Its children, such as those that load data, would not notice: they end here. What it holds on a
    GPU goes with its memory.
    """
    say(f"{why}: the function begins anew, from the checkpoint")
    flush_output()
    for pid in processes_below(os.getpid()):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for entry in Path("/proc/self/fd").iterdir():
        if int(entry.name) > 2:
            with suppress(OSError):
                os.set_inheritable(int(entry.name), False)  # noqa: FBT003 - its only argument
    os.environ[names.ENV_ANEW] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program


def processes_below(pid: int) -> list[int]:
    """Processes that this one has started, and those that they have, the deepest first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))

    def walk(above: int) -> list[int]:
        return [row for child in children.get(above, ()) for row in (*walk(child), child)]

    return walk(pid)
