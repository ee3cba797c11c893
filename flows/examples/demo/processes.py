"""The demo's processes: started in sessions of their own, and none left behind.

Whatever the demo starts, and what those start in turn, carries the demo's home in its environment
as LAXITY_HOME. So what an earlier run left, even one that was killed, is found by that mark.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from laxity import names

GRACE_S: Final = 10.0
CHILD_GRACE_S: Final = 6.0
POLL_S: Final = 0.05


@dataclass(slots=True)
class DemoProcesses:
    """Processes by name; each writes to its own log."""

    folder: Path
    environment: Mapping[str, str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str], **more: str) -> subprocess.Popen[bytes]:
        """Start a program in the demo's environment and `more` variables."""
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

    def ask(self, module: str) -> str:
        """What a module of ours prints, run in the demo's environment."""
        command = [sys.executable, "-P", "-m", module]
        answer = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True
        )
        return answer.stdout

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
