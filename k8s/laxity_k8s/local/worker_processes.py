"""Worker processes of the local cluster: start one, stop one, say what became of it.

The service may be killed at any moment, so nothing about a worker is only remembered here: what
counts lies in the pod's folder (see shim.py), and a process id is believed only together with its
start time and the machine's boot.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from laxity.private_files import private_folder
from laxity_k8s.local import shim
from laxity_k8s.local.launch import Launch

MARK = "LAXITY_POD"  # in a worker's environment: whose it is, for what its guard left behind
LOG_BYTES = 5 * 1024 * 1024
BEGIN_S = 5.0  # a guard that has the lock says so much sooner, or is dead


@dataclass(frozen=True, slots=True)
class Seen:
    """absent: nothing began; starting: a guard is on its way; lost: its guard was killed."""

    state: Literal["absent", "starting", "running", "exited", "lost"]
    guard: int = 0
    code: int = 0
    at: float = 0.0
    disrupted: bool = False  # it did not end by itself, and not because its Job wanted it


class WorkerProcesses:
    """The workers of one home folder, one folder per pod uid under `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        private_folder(folder)
        self.boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._ready: dict[int, str] = {}  # descriptors that close when a guard has its worker
        self._ends: dict[int, str] = {}  # descriptors that become readable when a guard ends
        self._fresh: dict[str, int] = {}  # process ids of guards on their way
        self._asked: set[str] = set()

    def start(self, uid: str, what: Launch, *, log: Path, grace_s: float) -> None:
        """Start a guard for the worker. Whatever was started before, the worker runs once."""
        folder = self.folder / uid
        private_folder(folder)
        task = {
            "argv": what.argv,
            "env": what.env | {MARK: uid},
            "cwd": what.cwd,
            "log": str(log),
            "log_bytes": LOG_BYTES,
            "grace_s": grace_s,
            "boot": self.boot,
        }
        shim.write_note(str(folder / "task.json"), task)
        (folder / "task.json").chmod(0o600)
        ready, ready_in = os.pipe()
        command = [sys.executable, "-I", "-S", shim.__file__, str(folder), str(ready_in)]
        guard = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(ready_in,),
            cwd="/",
        )
        os.close(ready_in)
        self._ready[ready] = uid
        self._fresh[uid] = guard.pid
        guard.returncode = 0  # reaped through its descriptor, not by subprocess
        self._watch_guard(uid, guard.pid)

    def read_state(self, uid: str) -> Seen:
        """What is true of a pod's worker now."""
        folder = self.folder / uid
        ended = read_exit(folder)
        if ended is not None:
            return ended
        if uid in self._ready.values():
            return Seen("starting", guard=self._fresh.get(uid, 0))
        started = _read_json(folder / "started.json")
        if started is None:
            return Seen("absent")
        if started["boot"] == self.boot and is_alive(started["pid"], started["ticks"]):
            self._watch_guard(uid, int(started["pid"]))
            return Seen("running", guard=int(started["pid"]))
        return read_exit(folder) or Seen("lost")  # it may have ended between the two looks

    def env_of(self, uid: str) -> dict[str, str]:
        """The environment that a pod's worker was started with; {} before that."""
        task = _read_json(self.folder / uid / "task.json")
        return dict(task["env"]) if task else {}

    def disrupt(self, uid: str) -> None:
        """What ends this worker now is no failure of its own."""
        (self.folder / uid / "disrupted").touch()

    def stop(self, uid: str) -> None:
        """Ask a running worker to stop; its guard sees to the grace. Asked once per service."""
        process = self.read_state(uid)
        if process.state == "running" and uid not in self._asked:
            self._asked.add(uid)
            with suppress(ProcessLookupError):
                os.kill(process.guard, signal.SIGTERM)

    def bar_start(self, uid: str) -> None:
        """From now on no guard begins with this worker: one on its way finds it ended.

        A guard that has the lock is waited for, for the moment until it says that it began.
        """
        folder = self.folder / uid
        end_at = time.monotonic() + BEGIN_S
        while folder.is_dir() and not (folder / "started.json").exists():
            lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not (folder / "started.json").exists():
                    ended: dict[str, object] = {"code": shim.LOST, "at": time.time(), "lost": True}
                    shim.write_note(str(folder / "exit.json"), ended)
            except BlockingIOError:
                if time.monotonic() < end_at:
                    time.sleep(0.005)
                    continue
            finally:
                os.close(lock)
            return

    def kill(self, uid: str) -> None:
        """End the guard and all that its worker started, at once."""
        self.bar_start(uid)
        process = self.read_state(uid)
        if process.guard:
            with suppress(ProcessLookupError):
                os.kill(process.guard, signal.SIGKILL)
        for pid in pids_of(uid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def forget(self, uid: str) -> None:
        """Remove a pod's folder; its worker is gone."""
        shutil.rmtree(self.folder / uid, ignore_errors=True)
        self._asked.discard(uid)
        self._fresh.pop(uid, None)

    def list_uids(self) -> list[str]:
        """Uids of all pods that have a folder."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())

    def descriptors(self) -> list[int]:
        return [*self._ready, *self._ends]

    def take_event(self, descriptor: int) -> str:
        """A descriptor is readable: close it; the uid of the pod to look at."""
        uid = self._ready.pop(descriptor, None) or self._ends.pop(descriptor, "")
        with suppress(ChildProcessError, OSError):
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
        os.close(descriptor)
        return uid

    def close(self) -> None:
        for descriptor in self.descriptors():
            os.close(descriptor)
        self._ready.clear()
        self._ends.clear()

    def _watch_guard(self, uid: str, guard: int) -> None:
        if uid not in self._ends.values():
            with suppress(ProcessLookupError):
                self._ends[os.pidfd_open(guard)] = uid


def read_exit(folder: Path) -> Seen | None:
    ended = _read_json(folder / "exit.json")
    if ended is None:
        return None
    disrupted = bool(ended.get("lost")) or (folder / "disrupted").exists()
    return Seen("exited", code=int(ended["code"]), at=float(ended["at"]), disrupted=disrupted)


def is_alive(pid: int, ticks: int) -> bool:
    """Is it still the process that started then? A zombie is not alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(stat[19]) == ticks and stat[0] not in (b"Z", b"X")


def pids_of(uid: str) -> Iterator[int]:
    """Processes that carry a pod's mark in their environment, wherever they have gone."""
    wanted = f"{MARK}={uid}".encode()
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            with suppress(OSError):
                if wanted in (path / "environ").read_bytes().split(b"\0"):
                    yield int(path.name)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return document
