"""One process at a time acts on a home folder; and how all its workers are stopped when none does."""

import fcntl
import json
import os
import select
import time
from pathlib import Path

from laxity_k8s.cluster_api import ApiError
from laxity_k8s.local.worker_processes import WorkerProcesses

DOWN_MARGIN_S = 10.0  # past the longest grace, before what is left is killed


def lock_home(home: Path) -> int:
    """Take the folder for this process, until the descriptor is closed; ApiError 423 if it is taken."""
    lock = os.open(home / "cluster.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode().strip()
        os.close(lock)
        message = (
            f"{home} is in use by process {holder or '?'}: stop it, or choose another LAXITY_HOME; "
            "if it is laxity down, try again when its workers have saved"
        )
        raise ApiError(message, status=423) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def stop_workers(home: Path) -> int:
    """Stop all workers of a home folder whose service is down, and wait until they are gone.

    Each has its own grace to save; the Jobs stay as they are and go on when the service is back.
    How many were stopped.
    """
    if not (home / "pods").is_dir():
        return 0
    lock = lock_home(home)
    processes = WorkerProcesses(home / "pods")
    try:
        for uid in processes.list_uids():
            processes.bar_start(uid)
        running = [
            uid for uid in processes.list_uids() if processes.read_state(uid).state == "running"
        ]
        for uid in running:
            processes.disrupt(uid)
            processes.stop(uid)
        _await_gone(processes, running, grace_s=_longest_grace(home))
        for uid in processes.list_uids():
            processes.kill(uid)
        return len(running)
    finally:
        processes.close()
        os.close(lock)


def _await_gone(processes: WorkerProcesses, uids: list[str], *, grace_s: float) -> None:
    end_at = time.monotonic() + grace_s + DOWN_MARGIN_S
    while any(processes.read_state(uid).state == "running" for uid in uids):
        left_s = end_at - time.monotonic()
        if left_s <= 0:
            return
        ready, _, _ = select.select(processes.descriptors(), [], [], left_s)
        for descriptor in ready:
            processes.take_event(descriptor)


def _longest_grace(home: Path) -> float:
    tasks = (home / "pods").glob("*/task.json")
    return max((float(json.loads(path.read_text())["grace_s"]) for path in tasks), default=0.0)
