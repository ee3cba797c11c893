"""The service in the background of this machine: started, found, and stopped again.

Starting waits until the service answers that it is ready, so what comes next can rely on it; a
service that dies on its way up is reported with the end of its log, not with a timeout.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Final

from laxity_scheduler.process.instance_dir import InstanceDir, RunningService

START_S: Final = 120.0
STOP_S: Final = 40.0
LOOK_S: Final = 0.1
LOG_LINES: Final = 20
ERROR_MARK: Final = "error: "  # before the line that a command ends with


class DaemonError(RuntimeError):
    """The service did not start or did not stop; its exit code if it ended, else 1."""

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def await_settled(home: InstanceDir, *, wait_s: float = START_S) -> RunningService | None:
    """The running service once it listens; None if there is none, or once it has stopped."""
    give_up_at = time.monotonic() + wait_s
    while (running := home.running_service()) is not None and not running.url:
        if time.monotonic() >= give_up_at:
            message = f"process {running.pid} still starts or stops after {wait_s:.0f} s: see"
            raise DaemonError(f"{message} {home.log_file}, and end it with: laxity down")
        time.sleep(LOOK_S)
    return running


def start_service(
    home: InstanceDir,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    wait_s: float = START_S,
) -> RunningService:
    """Start `laxity serve` with these arguments in a session of its own, and wait until it is ready.

    `variables` are those of its environment that differ from ours, "" where there is none.
    -P keeps a `token.py` or `queue.py` in the current folder from being imported.
    """
    command = [sys.executable, "-P", "-m", "laxity_scheduler", "serve", *arguments]
    home.make_private()
    with _open_log(home) as log:
        began = log.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | variables | {"LAXITY_HOME": str(home.path)},
        )
    try:
        return _until_ready(home, process, began, wait_s)
    except KeyboardInterrupt:  # the user gave up: leave no service that comes up later
        process.terminate()
        process.wait(STOP_S)
        raise


def _open_log(home: InstanceDir) -> BinaryIO:
    """The log, open for appending; DaemonError if the disk is full."""
    log = home.log_file.open("ab", buffering=0)
    try:
        log.write(f"starting laxity {version('laxity')}\n".encode())
    except OSError as error:
        log.close()
        message = f"{home.log_file} cannot be written: {error.strerror}; nothing was started"
        raise DaemonError(message) from error
    return log


def _until_ready(
    home: InstanceDir, process: subprocess.Popen[bytes], began: int, wait_s: float
) -> RunningService:
    give_up_at = time.monotonic() + wait_s
    while time.monotonic() < give_up_at:
        running = home.running_service()
        if running is not None and running.pid == process.pid and is_ready(running.url):
            return running
        if process.poll() is not None:
            code = process.returncode
            raise DaemonError(_end_text(home, code, began), code=max(1, code))
        time.sleep(LOOK_S)
    last_lines = log_tail(home.log_file, began)
    raise DaemonError(f"the service is not ready after {wait_s:.0f} s:\n{last_lines}")


def _end_text(home: InstanceDir, code: int, began: int) -> str:
    """Why the service ended: its own error if that is its last line, else the end of its log."""
    last_lines = log_tail(home.log_file, began) or _empty_log_text(home)
    last_line = last_lines.rpartition("\n")[2]
    if last_line.startswith(ERROR_MARK):
        return last_line.removeprefix(ERROR_MARK)
    return f"the service ended with {code}:\n{last_lines}"


def stop_service(home: InstanceDir, *, wait_s: float = STOP_S) -> RunningService | None:
    """Stop the service and wait for its end; kill it if it does not end. None if none ran."""
    running = home.running_service()
    if running is None:
        return None
    for how in (signal.SIGTERM, signal.SIGKILL):
        give_up_at = time.monotonic() + wait_s
        try:
            os.kill(running.pid, how)
        except ProcessLookupError:
            return running
        while time.monotonic() < give_up_at:
            now = home.running_service()
            if now is None or now.pid != running.pid:
                return running
            time.sleep(LOOK_S)
    raise DaemonError(f"process {running.pid} does not end")


def is_ready(url: str) -> bool:
    """Whether the service at this address says that it is ready."""
    if not url:
        return False
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/readyz", timeout=5.0) as answer:
            return bool(json.load(answer)["ready"])
    except (OSError, ValueError, KeyError):
        return False


def _empty_log_text(home: InstanceDir) -> str:
    """The message about a service that ended without writing to its log."""
    free = shutil.disk_usage(home.path).free
    return f"it wrote nothing to {home.log_file}; {free:,} bytes are free there"


def log_tail(path: Path, began: int) -> str:
    """The last lines of a log from this byte on, without those of earlier services."""
    lines = path.read_bytes()[began:].decode(errors="replace").splitlines()
    return "\n".join(lines[-LOG_LINES:])
