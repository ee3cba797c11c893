"""The service's folder: which process serves it, where it listens, and a lock that dies with it.

A pid alone is not enough: after a crash another process may have the number. So the file holds the
pid with the start time of that process. The lock is the kernel's, which releases it however the
process ends.
"""

import contextlib
import fcntl
import json
import os
import socket
import stat
import uuid
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Self

from laxity.durable_files import replace_file
from laxity.private_files import private_folder
from laxity.safe_text import without_secrets

LOCK_FILE: Final = "service.lock"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class InstanceDirError(RuntimeError):
    """This folder cannot be used by a service: the reason, and what to do."""


class InstanceDirBusyError(InstanceDirError):
    """Another service runs on this home."""


@dataclass(frozen=True, slots=True)
class RunningService:
    """A running service: its process, and where it listens ("" while it starts or stops)."""

    pid: int
    url: str


class InstanceDir:
    """A folder and its files; made, for its owner alone, if it is not there."""

    def __init__(self, path: Path) -> None:
        private_folder(path)
        self.path = path
        self.pid_file = path / "service.pid"
        self.service_file = path / "service.json"
        self.log_file = path / "service.log"
        self.tokens_file = path / "tokens"
        self._port_file = path / "service.port"
        self._lock: int | None = None

    def make_private(self) -> Self:
        """Close the folder and its files to all but their owner; InstanceDirError if that is another user.

        Jobs carry secrets in their environment, and whoever can write here can run code as this user.
        """
        folder_stat = self.path.stat()
        other = folder_stat.st_uid not in (os.geteuid(), 0)
        if other or (folder_stat.st_uid == 0 and folder_stat.st_mode & stat.S_ISVTX):
            whose = f"belongs to user {folder_stat.st_uid}" if other else "is shared by all users"
            raise InstanceDirError(f"{self.path} {whose}: set LAXITY_HOME to a folder of your own")
        for place in (self.path, *self.path.iterdir()):
            mode = place.lstat()
            if mode.st_uid == os.geteuid() and not stat.S_ISLNK(mode.st_mode):
                place.chmod(stat.S_IMODE(mode.st_mode) & ~0o077)
        return self

    def lock_for_process(self) -> Self:
        """Lock the folder for this process until it ends; InstanceDirBusyError if another has it."""
        lock = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            running = self.running_service()
            who = _service_text(running) if running else "another process"
            message = f"{who} already serves {self.path}; stop it with: laxity down"
            raise InstanceDirBusyError(message) from None
        self._lock = lock
        replace_file(
            self.pid_file,
            json.dumps({"pid": os.getpid(), "started": _start_ticks(os.getpid())}),
            mode=0o600,
        )
        return self

    def publish_address(self, url: str, token: str) -> None:
        """Write where the service listens, for clients that may read the folder."""
        replace_file(
            self.service_file,
            json.dumps({"url": url, "token": token, "pid": os.getpid()}),
            mode=0o600,
        )

    def withdraw_address(self) -> None:
        """Let no client find this service any more: it stops."""
        self.service_file.unlink(missing_ok=True)

    def last_port(self) -> int:
        """The port of the last service of this folder, 0 if there was none."""
        port = _read_json(self._port_file).get("port", 0)
        return port if isinstance(port, int) and 0 < port < 65_536 else 0

    def keep_port(self, port: int) -> None:
        replace_file(self._port_file, json.dumps({"port": port}), mode=0o600)

    def release_lock(self) -> None:
        """Remove the files that name this process, and release the lock."""
        self.withdraw_address()
        self.pid_file.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def running_service(self) -> RunningService | None:
        """The service of this folder, if its process is alive."""
        process = _read_json(self.pid_file)
        pid = process.get("pid")
        if not isinstance(pid, int) or not process.get("started"):
            return None
        if _start_ticks(pid) != process["started"]:
            return None
        where = _read_json(self.service_file)
        return RunningService(pid, str(where.get("url", "")) if where.get("pid") == pid else "")


def name_lock_holder(home: Path) -> str:
    """A name that only one process can have at a time: the one that has locked this folder.

    The lock is that of a file on a machine since its last boot, so a copy of the folder gives another
    name. Where boots have no ids, nor has a name any predecessor.
    """
    file = (home / LOCK_FILE).stat()
    boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else uuid.uuid4().hex
    digest = blake2b(f"{boot} {file.st_dev} {file.st_ino}".encode(), digest_size=4).hexdigest()
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{digest}"


def _service_text(running: RunningService) -> str:
    where = f"at {without_secrets(running.url)}" if running.url else "(it is starting or stopping)"
    return f"process {running.pid} {where}"


def _start_ticks(pid: int) -> str:
    """The start time of a process in kernel ticks; "" if there is none, or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _alive_without_proc(pid)
    return "" if fields[0] == "Z" else fields[19]


def _alive_without_proc(pid: int) -> str:
    """Without /proc: only that there is such a process."""
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "" if Path("/proc/self").exists() else "alive"


def _read_json(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        document = json.loads(path.read_text())
        if isinstance(document, dict):
            return document
    return {}
