"""Slurm through its own commands, as a user types them."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from laxity_scheduler.following.link_queue import (
    NoQueueError,
    QueueAwayError,
    QueueError,
    QueueRefusalError,
    QueueRow,
)
from laxity_scheduler.slurm.slurm_tables import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    is_away,
    is_unconfigured,
    parse_controller_time,
    parse_job_exit_code,
    parse_job_id,
    parse_planned_start,
    parse_sacct,
    parse_squeue,
    slurm_words,
)

AWAY: Final = "the Slurm controller does not answer"
UNCONFIGURED: Final = (
    "no Slurm cluster is configured here: run this on a login node of the cluster, or name its "
    "slurm.conf in SLURM_CONF"
)
PATIENCE_S: Final = 120.0  # Slurm's own messages time out after at most 100 s
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


class SlurmClient:
    """Each call runs one command. QueueError has Slurm's words.

    `held_open` is inherited by sbatch: a lock on it is held until sbatch has ended, even when this
    process is killed meanwhile. sbatch runs in `submit_dir`, where jobs then start.
    """

    def __init__(self, held_open: int | None = None, submit_dir: str | None = None) -> None:
        self._submit_dir = submit_dir
        self._held_open = () if held_open is None else (held_open,)

    def submit(self, script: Path, *options: str) -> str:
        """The id of the job that sbatch made."""
        command = ("sbatch", "--parsable", *options, str(script))
        answer = _run(command, pass_fds=self._held_open, cwd=self._submit_dir)
        try:
            return parse_job_id(answer.stdout)
        except ValueError as error:  # there may be a job: the queue is asked for it first
            raise QueueAwayError(str(error)) from error

    def ask_planned_start(self, script: Path, *options: str) -> float | None:
        """When Slurm's plan of now would start this script; None if it does not say."""
        answer = _ask("sbatch", "--test-only", *options, str(script))
        return _read(parse_planned_start, answer.stderr + answer.stdout)

    def jobs_of_name(self, name: str) -> list[QueueRow]:
        """Own jobs of this name, the ended ones while Slurm remembers them, by id."""
        options = ("-h", "-t", "all", "-u", str(os.getuid()), "--name", name, "-o", SQUEUE_FORMAT)
        rows = _read(parse_squeue, _ask("squeue", *options).stdout)
        return sorted((row for row in rows if row.name == name), key=lambda row: int(row.job_id))

    def queue(self) -> list[QueueRow]:
        """All jobs that wait or run and that this user may see."""
        states = "PENDING,CONFIGURING,RUNNING,SUSPENDED,COMPLETING"
        options = ("-h", "-t", states, "-o", SQUEUE_FORMAT)
        return _read(parse_squeue, _ask("squeue", *options).stdout)

    def exit_code(self, job_id: str) -> int | None:
        """The exit code of a job that Slurm still remembers, else None."""
        try:
            return parse_job_exit_code(_ask("scontrol", "show", "job", "-o", job_id).stdout)
        except QueueRefusalError:
            return None

    def ask_accounting(self, *options: str) -> list[QueueRow]:
        """Jobs from the accounting database. QueueRefusalError where the cluster has none."""
        base = ("-n", "-P", "-X", "--format", SACCT_FIELDS)
        return _read(parse_sacct, _ask("sacct", *base, *options).stdout)

    def cancel(self, job_ids: Iterable[str]) -> None:
        ids = list(job_ids)
        if ids:
            _ask("scancel", *ids)

    def controller_at(self) -> float:
        """The controller's clock, against which its starts and ends are to be read."""
        now_at = _read(parse_controller_time, _ask("scontrol", "show", "config").stdout)
        if now_at is None:
            raise QueueRefusalError("scontrol show config does not say what time it is")
        return now_at


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    """With instants in seconds, whichever time zone the command takes for its own."""
    return _run(command, env={**os.environ, "SLURM_TIME_FORMAT": "%s"})


def _run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
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
    return answer


def _error_of(words: str) -> QueueError:
    """What a command said, after what it means where that is known."""
    if is_unconfigured(words):
        return NoQueueError(f"{UNCONFIGURED} ({words})")
    return QueueAwayError(f"{AWAY} ({words})") if is_away(words) else QueueRefusalError(words)


def _read(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise QueueRefusalError(str(error)) from error
