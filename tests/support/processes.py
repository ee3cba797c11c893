"""Processes of a test: started in sessions of their own, and none left behind.

Whatever a test starts, and what those start in turn, carries its home in the environment as
LAXITY_HOME. So what was left, even by a process that was killed, is found by that mark.
"""

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from laxity import names

GRACE_S: Final = 10.0
CHILD_GRACE_S: Final = 6.0
POLL_S: Final = 0.05
PORTS: Final = range(20_000, 32_768)  # below those of outgoing connections, by default
QUIET: Final = {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PYTHONUNBUFFERED": "1",
}
# One worker, one core: the slots are worth the same, and two workers are twice as fast.
ONE_CORE: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
FOREIGN: Final = ("PREFECT_", "MLFLOW_", "LAXITY_")  # a user's own servers are none of its business


@dataclass(slots=True)
class ServerProcesses:
    """Processes by name; each writes to its own log."""

    folder: Path
    environment: Mapping[str, str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str], **more: str) -> subprocess.Popen[bytes]:
        """Start a program in the test's environment and `more` variables."""
        with self.log(name).open("ab") as log:
            started = subprocess.Popen(
                command,
                env={**self.environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running[name] = started
        return started

    def log(self, name: str) -> Path:
        folder = self.folder / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"

    def tail(self, name: str, lines: int = 15) -> str:
        """The last lines of a process's output."""
        try:
            return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def stop(self, last: Sequence[str] = ()) -> None:
        """Stop everything: all but the `last` at once, then those, then whatever carries the mark."""
        first = [process for name, process in self.running.items() if name not in last]
        _stop_all(first)
        _stop_all([self.running[name] for name in last if name in self.running])
        stop_marked(self.folder)


def stop_marked(folder: Path, *, grace_s: float = GRACE_S) -> int:
    """End every process that carries this home: SIGTERM, then SIGKILL. How many there were."""
    pids = pids_with_home(folder)
    for number in pids:
        _signal_process(number, signal.SIGTERM)
    if not _wait_until(lambda: not pids_with_home(folder), grace_s):
        for number in pids_with_home(folder):
            _signal_process(number, signal.SIGKILL)
        _wait_until(lambda: not pids_with_home(folder), grace_s)
    return len(pids)


def pids_with_home(folder: Path) -> list[int]:
    """Process ids, other than ours, whose environment says LAXITY_HOME=folder (Linux's /proc)."""
    mark = f"{names.ENV_HOME}={folder}".encode()
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                pids.append(int(entry.name))
    return [number for number in pids if number != os.getpid()]


def _stop_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """SIGTERM to all at once; SIGKILL to those that are still there after the grace."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    _wait_until(lambda: all(process.poll() is not None for process in processes), CHILD_GRACE_S)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def _signal_process(number: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(number, what)


def _wait_until(done: Callable[[], bool], limit_s: float) -> bool:
    """Whether it became true in time."""
    give_up_at = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(POLL_S)
    return True


def run_command(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
) -> "subprocess.CompletedProcess[str]":
    """The command once it has ended, with all that it printed, whatever became of it."""
    return subprocess.run(
        command, env=env, cwd=cwd, timeout=timeout, capture_output=True, text=True, check=False
    )


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now, all different.

    None that the system gives to outgoing connections: a server takes seconds to start, and may
    find that one has gone meanwhile.
    """
    anywhere, ports = random.SystemRandom(), list[int]()
    with contextlib.ExitStack() as held:
        while len(ports) < number:
            listener = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # taken
                listener.bind(("127.0.0.1", anywhere.choice(PORTS)))
                ports.append(listener.getsockname()[1])
    return ports


def service_environment(folder: Path, *, service_url: str, prefect_url: str) -> dict[str, str]:
    """The environment of a service on this home: its own servers, one core a worker, no noise."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {
        **inherited,
        **QUIET,
        **ONE_CORE,
        names.ENV_HOME: str(folder),
        names.ENV_URL: service_url,
        names.ENV_TOKEN: secrets.token_urlsafe(32),
        names.ENV_TRACKED_BY: "service",  # or each of the short trainings would import MLflow
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "PREFECT_API_URL": prefect_url,
        "PREFECT_HOME": str(folder / "prefect"),
        "MPLCONFIGDIR": str(folder / "matplotlib"),
    }
