"""A service killed at any moment leaves no worker behind and starts none twice."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from laxity_k8s.local.local_cluster import LocalCluster, stop_workers
from laxity_k8s.local.shim import start_ticks
from laxity_k8s.local.worker_processes import MARK, is_alive
from tests.support.programs.crashing import JOBS, opened, settled, wanted
from tests.support.waiting import Eyes, until

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def serve(home: Path, *, seed: int, die_at: int) -> int:
    """A service of its own process; its exit status, -9 if it was killed."""
    command = [
        sys.executable,
        "-m",
        "tests.support.programs.crashing",
        str(home),
        str(seed),
        str(die_at),
    ]
    return subprocess.run(command, cwd=REPOSITORY, check=False, timeout=100).returncode


def workers(home: Path) -> dict[int, str]:
    """Living workers of this home by process id, with their pod's uid."""
    found = {}
    for path in (home / "births").iterdir():
        for line in path.read_text().split():
            try:
                ticks = start_ticks(int(line))
                environ = Path(f"/proc/{line}/environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={path.name}".encode() in environ and is_alive(int(line), ticks):
                found[int(line)] = path.name
    return found


def born(home: Path) -> list[int]:
    """How often each pod's worker began."""
    return [len(path.read_text().split()) for path in (home / "births").iterdir()]


def pod_uids(api: LocalCluster) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in api.list("pods").items
        if pod["status"]["phase"] not in {"Succeeded", "Failed"}
    }


def examine(home: Path, *, seed: int, kills: int) -> None:
    """Kill services at random calls, then let one live and look at all that is left."""
    rng = random.Random(seed)
    statuses = [
        serve(home, seed=rng.randrange(10**6), die_at=int(10 ** rng.uniform(1.5, 4.2)))
        for _ in range(kills)
    ]
    api = opened(home)
    try:
        with Eyes(api) as eyes:
            eyes.until(lambda: settled(eyes), "settled")
            width = {name: wanted(eyes.job(f"default/{name}")) for name in JOBS}
        assert -9 in statuses
        assert set(statuses) <= {-9, 0}
        until(lambda: sorted(workers(home).values()) == sorted(pod_uids(api)), "a worker a pod")
        assert set(born(home)) <= {0, 1}  # 0: stopped as it began
        assert len(workers(home)) == sum(width.values())
        assert not any(job["status"].get("failed") for job in api.list("jobs").items)
    finally:
        api.close()
        stop_workers(home)
    assert workers(home) == {}


@pytest.mark.parametrize("seed", range(5))
def test_no_worker_is_lost_or_started_twice_when_the_service_is_killed(
    seed: int, tmp_path: Path
) -> None:
    examine(tmp_path, seed=seed, kills=4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_no_worker_is_lost_or_started_twice_in_two_hundred_kills(seed: int, tmp_path: Path) -> None:
    examine(tmp_path, seed=seed, kills=10)


def test_a_killed_guard_takes_its_worker_along_and_the_worker_is_replaced(tmp_path: Path) -> None:
    api = opened(tmp_path)
    try:
        with Eyes(api) as eyes:
            from tests.support.programs.crashing import manifest

            made = manifest("one")
            made["spec"]["suspend"] = False
            api.create("jobs", made)
            eyes.until(lambda: settled(eyes), "it runs")
            until(lambda: workers(tmp_path), "it is born")
            (pid, uid), *_ = workers(tmp_path).items()
            guard = api.controller.processes.read_state(uid).guard
            os.kill(guard, 9)
            eyes.until(lambda: settled(eyes) and uid not in pod_uids(api), "it was replaced")
            until(lambda: pid not in workers(tmp_path), "the worker has gone")
            until(lambda: len(workers(tmp_path)) == 1, "its successor is born")
    finally:
        api.close()
        stop_workers(tmp_path)
