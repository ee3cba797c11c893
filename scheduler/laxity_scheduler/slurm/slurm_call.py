"""Slurm through its own commands, as a user types them. QueueError has Slurm's words."""

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any, Final, TypeVar

from laxity_scheduler.following.link_queue import (
    NoQueueError,
    QueueAwayError,
    QueueError,
    QueueFullError,
    QueueRefusalError,
)
from laxity_scheduler.slurm.slurm_tables import (
    is_away,
    is_closed,
    is_full,
    is_unconfigured,
    slurm_words,
)

AWAY: Final = "the Slurm controller does not answer"
FULL: Final = "your account or QOS may have no more jobs in the queue until others have ended"
CLOSED: Final = "the partition takes no jobs until an administrator opens it again"
UNCONFIGURED: Final = (
    "no Slurm cluster is configured here: run this on a login node of the cluster, or name its "
    "slurm.conf in SLURM_CONF"
)
PATIENCE_S: Final = 120.0  # Slurm's own messages time out after at most 100 s
OF_THE_USER: Final = ("SQUEUE_", "SACCT_", "SCANCEL_")  # SQUEUE_PARTITION, SCANCEL_INTERACTIVE, ...
T = TypeVar("T")


def require_slurm() -> None:
    """NoQueueError where no command of Slurm could work."""
    if shutil.which("sbatch") is None:
        raise NoQueueError("no program sbatch here: run this on a login node of the Slurm cluster")
    path = os.environ.get("SLURM_CONF")
    if path and not os.access(path, os.R_OK):  # each command would look for it for a minute
        raise NoQueueError(
            f"SLURM_CONF={path}: no such file to read; name the cluster's slurm.conf"
        )


def ask_slurm(parse: Callable[[str], T], *command: str, **options: Any) -> T:
    """What `parse` reads in a command's output.

    Instants in it are in seconds, whichever time zone the command takes for its own. What the user
    has set for squeue, sacct and scancel would hide jobs from it, or ask before it cancels.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith(OF_THE_USER)}
    environ = {**own, "SLURM_TIME_FORMAT": "%s"}
    try:
        return parse(run_slurm(*command, env=environ, **options))
    except ValueError as error:
        raise QueueRefusalError(str(error)) from error


def run_slurm(*command: str, stderr: int = subprocess.PIPE, **options: Any) -> str:
    """The command's output; `options` are those of subprocess.run."""
    try:
        answer: subprocess.CompletedProcess[str] = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
            stdin=subprocess.DEVNULL,
            **options,
        )
    except FileNotFoundError as error:
        raise QueueRefusalError(f"{command[0]}: there is no {error.filename} here") from error
    except subprocess.TimeoutExpired as error:
        message = f"{AWAY}: {command[0]} took longer than {PATIENCE_S:.0f} s"
        raise QueueAwayError(message) from error
    if answer.returncode != 0:
        message = slurm_words(answer.stderr or answer.stdout) or f"exit {answer.returncode}"
        raise _error_of(f"{command[0]}: {message}")
    return answer.stdout


def _error_of(words: str) -> QueueError:
    """What a command said, after what it means where that is known."""
    if is_unconfigured(words):
        return NoQueueError(f"{UNCONFIGURED} ({words})")
    if is_full(words):
        return QueueFullError(f"{FULL} ({words})")
    if is_closed(words):
        return QueueFullError(f"{CLOSED} ({words})")
    return QueueAwayError(f"{AWAY} ({words})") if is_away(words) else QueueRefusalError(words)
