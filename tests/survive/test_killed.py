"""Service, workers and flows are killed with -9 at random moments: all jobs finish, each epoch once."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.programs.marked import EPOCHS
from tests.support.stage import Stage, stage
from tests.support.waiting import until

KINDS = ("service", "worker", "worker", "flow")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_kills_lose_nothing_and_start_nothing_twice(tmp_path: Path, prefect_api: str) -> None:
    killed_and_whole(tmp_path, prefect_api, kills=5, seed=5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_twenty_kills_lose_nothing_and_start_nothing_twice(
    tmp_path: Path, prefect_api: str, seed: int
) -> None:
    killed_and_whole(tmp_path, prefect_api, kills=20, seed=seed)


def killed_and_whole(home: Path, prefect_api: str, *, kills: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with stage(home, prefect_api) as there:
        for number in range(max(4, kills // 2)):
            wanted = {"deadline": "30m", "workers": [1, 2]} if number % 2 else {}
            there.submit(str(number), **wanted)
        for name in ("flow-a", "flow-b"):
            there.start_flow(name)
        until(lambda: bool(there.workers()), limit_s=180, what="the first worker")
        # the first kills are one of each kind, so that every run has them all
        order = [*rng.permutation(sorted(set(KINDS))), *rng.choice(KINDS, size=kills)]
        for number, kind in enumerate(order[:kills]):
            give_work(there, str(kind), str(number))
            strike(there, str(kind), rng)
        until(lambda: _all_ended(there), limit_s=600, what="all jobs and flows to end")
        assert len(there.killed) == kills
        check_whole(there)


def give_work(there: Stage, kind: str, name: str) -> None:
    """What there is to kill of a kind, however soon the jobs and flows before have ended."""
    if kind == "worker":
        for job in ("a", "b"):
            there.submit(f"{name}{job}")
    elif kind == "flow":
        there.start_flow(f"flow-{name}")


def strike(there: Stage, kind: str, rng: np.random.Generator) -> None:
    """Kill one process of a kind at a random moment of the next seconds."""
    strike_at = time.monotonic() + float(rng.uniform(0.2, 3.0))
    until(lambda: time.monotonic() > strike_at, limit_s=10, what="the moment")
    until(lambda: there.kill_one(kind, rng), limit_s=180, what=f"a {kind} to kill")


def _all_ended(there: Stage) -> bool:
    states = {job.state for job in there.client.jobs()}
    flows_done = all(flow.poll() is not None for flow in there.flows.values())
    return flows_done and states <= {"finished", "failed", "refused", "cancelled"}


def check_whole(there: Stage) -> None:
    jobs = there.client.jobs()
    assert {job.state for job in jobs} == {"finished"}, [
        (job.id, job.state, job.error) for job in jobs if job.state != "finished"
    ]
    names = [path.name for path in there.evidence.glob("*-0.lock")]
    assert len(jobs) == len(names), "one job for each name, however often it was asked for"
    assert not list(there.evidence.glob("*.twice")), "no worker ran twice at once"
    for job in jobs:
        assert job.result == {"sum": float(EPOCHS), "last": EPOCHS}, job.id
        assert job.epochs_done == EPOCHS
    for name, flow in there.flows.items():
        assert flow.returncode == 0, there.processes.tail(f"flow-{name}", 40)
        last = there.processes.tail(f"flow-{name}", 1)
        assert json.loads(last) == {"sum": float(EPOCHS), "last": EPOCHS}
    assert seen_epochs(there.home) == {job.uid: list(range(1, EPOCHS + 1)) for job in jobs}


def seen_epochs(home: Path) -> dict[str, list[int]]:
    """Epochs by job as the store has them, in order; one that is there twice would show."""
    with closing(sqlite3.connect(home / "laxity.db")) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = store.execute("SELECT uid, epoch FROM observed_epochs ORDER BY uid, epoch")
        found: dict[str, list[int]] = {}
        for uid, epoch in rows:
            found.setdefault(uid, []).append(epoch)
        return found
