"""The guard of one worker process: starts it once, keeps its output, stops it, notes its exit code.

A worker has to outlive the service that started it, even when that is killed, and a service that
comes back has to know what became of the worker. So each worker has its own small guard in its own
session. All that is agreed on lies in the pod's folder:

    task.json     what to run (argv, env, cwd, log, log_bytes, grace_s, boot), written by the service
    lock          held by the one guard that may run the worker
    started.json  the guard began: a second guard must never start the worker again
    exit.json     {"code", "at"}: the worker is gone

SIGTERM to the guard stops the worker: SIGTERM to its process group, SIGKILL after its grace. A guard
that is killed takes the worker with it. Run as `python -I -S shim.py FOLDER READY_FD`; only the
standard library is there. The descriptor is closed as soon as the worker runs.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1
TAKEN = 75  # exit status: another guard has this worker
LOST = 137  # what a worker counts as whose guard was killed
CHUNK = 65_536
HEAD = 65_536  # bytes of a log's beginning that are kept


class Output:
    """A log of bounded size: a full file is kept as `.1`, the log's beginning as `.head`.

    `.begun` counts the bytes before the file; laxity.api.log_text reads all of it.
    """

    def __init__(self, path: str, limit_bytes: int) -> None:
        self.path, self.limit_bytes = path, limit_bytes
        self._open_file()

    def write(self, chunk: bytes) -> None:
        os.write(self.file, chunk)
        self.size += len(chunk)
        if self.size > self.limit_bytes:
            self._keep_beginning()
            os.replace(self.path, f"{self.path}.1")  # noqa: PTH105 - pathlib would double the start
            os.close(self.file)
            self._open_file()

    def _keep_beginning(self) -> None:
        try:
            with open(f"{self.path}.begun", encoding="utf-8") as file:  # noqa: PTH123
                begun = int(file.read())
        except (OSError, ValueError):
            begun = 0
            with open(self.path, "rb") as log, open(f"{self.path}.head", "wb") as head:  # noqa: PTH123
                first = log.read(HEAD)
                head.write(first[: first.rfind(b"\n") + 1])
        write_note(f"{self.path}.begun", begun + self.size)

    def _open_file(self) -> None:
        self.file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self.file).st_size


class WorkerGuard:
    """One running worker: its process group, its output, and the time it has left to stop."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.grace_s = float(task["grace_s"])
        self.output = Output(task["log"], int(task["log_bytes"]))
        self.kill_at: float | None = None
        self.wake, wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGCHLD, ignore_signal)
        self.pipe, pipe_in = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.pipe, False)
        self.sources = [self.wake, self.pipe]
        guard = os.getpid()
        self.worker = os.fork()
        if self.worker == 0:
            _become_worker(task, pipe_in, guard)
        os.close(pipe_in)

    def stop(self, *_: object) -> None:
        """Ask the worker to stop; asking again does not lengthen its grace."""
        if self.kill_at is None:
            self.kill_at = time.monotonic() + self.grace_s
            self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.worker, number)
        except ProcessLookupError:
            return
        except PermissionError:  # the group's leader has not made its group yet
            os.kill(self.worker, number)

    def wait(self) -> int:
        """Pass output on until the worker is gone; its exit code, as a shell counts it."""
        while not os.waitid(os.P_PID, self.worker, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            left_s = None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic())
            if left_s == 0.0:
                self.signal(signal.SIGKILL)
                left_s = 1.0
            ready, _, _ = select.select(self.sources, [], [], left_s)
            if self.wake in ready:
                os.read(self.wake, CHUNK)
            self.drain()
        self.signal(signal.SIGKILL)  # what the worker has left behind in its group
        end_session()
        self.drain()
        _, status = os.waitpid(self.worker, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def drain(self) -> None:
        while True:
            try:
                chunk = os.read(self.pipe, CHUNK)
            except BlockingIOError:
                return
            if not chunk:  # the worker closed its output: only its end is waited for
                self.sources = [self.wake]
                return
            self.output.write(chunk)


def end_session() -> None:
    """Kill what the worker has left behind in groups of their own, such as a script that it ran."""
    own = os.getpid()
    if os.getsid(0) != own:
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would double the start
        try:
            if name.isdigit() and int(name) != own and os.getsid(int(name)) == own:
                os.kill(int(name), signal.SIGKILL)
        except ProcessLookupError:  # it has ended meanwhile
            continue


def ignore_signal(*_: object) -> None:
    """The wake-up descriptor says it; the signal needs no more."""


def _become_worker(task: dict[str, Any], output: int, guard: int) -> None:
    """In the child: turn into the worker. Never returns."""
    try:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(LOST)
        for number in (
            signal.SIGTERM,
            signal.SIGCHLD,
            signal.SIGPIPE,
            signal.SIGINT,
            signal.SIGHUP,
        ):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.chdir(task["cwd"])
        os.execvpe(task["argv"][0], task["argv"], task["env"])  # noqa: S606 - no shell is meant
    except OSError as error:
        os.write(2, f"cannot start {task['argv'][0]!r} in {task['cwd']}: {error}\n".encode())
    finally:
        os._exit(127)


def write_note(path: str, value: dict[str, object] | int) -> None:
    """Write a JSON file so that it is there whole or not at all."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:  # noqa: PTH123 - the fewest imports
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)  # noqa: PTH105


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: tells apart two processes of one pid."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return int(file.read().rpartition(b")")[2].split()[19])


def main(folder: str, ready: int) -> int:
    os.set_inheritable(ready, False)  # noqa: FBT003 - its only argument
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    lock = os.open(f"{folder}/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return TAKEN
    if os.path.exists(f"{folder}/exit.json"):  # noqa: PTH110
        return 0
    if os.path.exists(f"{folder}/started.json"):  # noqa: PTH110
        write_note(f"{folder}/exit.json", {"code": LOST, "at": time.time(), "lost": True})
        return 0
    with open(f"{folder}/task.json", encoding="utf-8") as file:  # noqa: PTH123
        task = json.load(file)
    own = os.getpid()
    mark: dict[str, object] = {"pid": own, "ticks": start_ticks(own), "boot": task["boot"]}
    write_note(f"{folder}/started.json", mark)
    guard = WorkerGuard(task)
    os.close(ready)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    code = guard.wait()
    write_note(f"{folder}/exit.json", {"code": code, "at": time.time()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
