"""A real service and trainings that hold no state: stopped, killed or tried again, none is finished
with epochs that another process has trained.
"""

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.api.job_view import JobView
from tests.support.local_service import LocalService, local_service
from tests.support.waiting import until

Json = dict[str, Any]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
EPOCHS = 300
CODE = """
import time
from pathlib import Path

from laxity import Training, deadline_flow

HERE = Path(__file__).parent


@deadline_flow(epochs=300, epoch_estimate="1s", model="forgetful")
def forgetful(training: Training, gate: str) -> int:
    count = 0
    for epoch in training.epochs():
        while epoch > 3 and not (HERE / gate).exists():
            time.sleep(0.02)
        time.sleep(0.0 if (HERE / gate).exists() else 2.0)
        count += 1
        training.log(count=count)  # what logs nothing and takes no time was not trained
    return count


@deadline_flow(epochs=4, epoch_estimate="1s", model="fails", restarts=0)
def fails_once(training: Training) -> int:
    count, marker = 0, HERE / "failed"
    for epoch in training.epochs():
        if epoch == 3 and not marker.exists():
            marker.touch()
            raise OSError("stale file handle")
        count += 1
    return count


@deadline_flow(deadline="60s", epochs=2, epoch_estimate="1s", model="urgent")
def urgent(training: Training) -> str:
    for _ in training.epochs():
        pass
    return "in time"
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[LocalService]:
    (tmp_path / "work.py").write_text(CODE)
    with local_service(tmp_path / "home", slots=1, LAXITY_SAVING_SHARE="1") as opened:
        yield opened


def submit(served: LocalService, function: str, name: str, *more: str) -> None:
    folder = served.home.parent
    done = served.laxity("submit", f"work.py:{function}", "--name", name, *more, cwd=folder)
    assert done.returncode in {0, 7}, done.stderr


def at_its_gate(served: LocalService, name: str) -> JobView:
    return served.until(name, lambda job: job.epochs_done == 3)


def open_gate(served: LocalService, name: str) -> None:
    (served.home.parent / f"gate-{name}").touch()


def kill_worker(served: LocalService) -> None:
    (worker,) = served.workers()
    os.kill(worker, signal.SIGKILL)


def objects(served: LocalService, kind: str) -> list[Json]:
    """What the cluster on this machine has of a kind."""
    with closing(sqlite3.connect(served.home / "cluster.db")) as store:
        rows = store.execute("SELECT body FROM objects WHERE kind = ?", (kind,)).fetchall()
    return [json.loads(text) for (text,) in rows]


def events(served: LocalService) -> list[str]:
    return [event["reason"] for event in objects(served, "events")]


def observed_epochs(served: LocalService, uid: str) -> list[int]:
    with closing(sqlite3.connect(served.home / "laxity.db")) as store:
        query = "SELECT epoch FROM observed_epochs WHERE uid = ? ORDER BY epoch"
        return [epoch for (epoch,) in store.execute(query, (uid,))]


def test_preempted_for_a_promise_it_trains_all_its_epochs_again(served: LocalService) -> None:
    submit(served, "forgetful", "lost", "-p", "gate=gate-lost")
    known = at_its_gate(served, "lost")
    until(lambda: "HoldsNoState" in events(served), "the Event")
    shown = served.laxity("show", "lost", cwd=served.home).stdout
    (job,) = objects(served, "jobs")
    kept = json.loads(job["metadata"]["annotations"][names.STATUS])
    submit(served, "urgent", "urgent")
    served.until("lost", lambda job: job.state == "stopping")
    open_gate(served, "lost")
    stopped = served.until("lost", lambda job: job.preemptions == 1)
    urgent, lost = served.ended("urgent"), served.ended("lost")
    explained = served.laxity("explain", "lost", cwd=served.home).stdout
    log = served.laxity("logs", "lost", cwd=served.home).stdout

    assert known.raw["holds_state"] is False
    assert kept["holds_state"] is False, "the Job itself says so"
    assert "nothing was given to training.restore()" in " ".join(shown.split())
    assert stopped.epochs_done < EPOCHS
    assert (urgent.state, urgent.result) == ("finished", "in time")
    assert (lost.state, lost.result, lost.epochs_done) == ("finished", EPOCHS, EPOCHS)
    assert "preempt_stateless" in explained
    assert "stopped_stateless" in explained
    assert log.count("a stop loses all epochs") == 2, "once in each process"
    assert observed_epochs(served, lost.uid) == list(range(1, EPOCHS + 1))


def test_killed_it_counts_from_0_and_trains_all_its_epochs_again(served: LocalService) -> None:
    submit(served, "forgetful", "lost", "-p", "gate=gate-lost")
    at_its_gate(served, "lost")
    kill_worker(served)
    served.until("lost", lambda job: job.epochs_done == 0)
    at_its_gate(served, "lost")
    served.kill()  # the next service knows it from the Job and its store
    served.start()
    kill_worker(served)
    served.until("lost", lambda job: job.epochs_done == 0)
    open_gate(served, "lost")
    lost = served.ended("lost")

    assert (lost.state, lost.result, lost.epochs_done) == ("finished", EPOCHS, EPOCHS)
    assert lost.preemptions == 0
    assert observed_epochs(served, lost.uid) == list(range(1, EPOCHS + 1))
    (reported,) = served.reported_epochs("lost").values()
    assert reported == [1, 2, 3, 1, 2, 3, *range(1, EPOCHS + 1)]


def test_a_retry_under_the_same_key_begins_at_epoch_1(served: LocalService) -> None:
    submit(served, "fails_once", "retried", "--key", "k")
    first = served.ended("retried")
    submit(served, "fails_once", "retried", "--key", "k")
    again = served.ended("retried-a2")

    assert (first.state, first.epochs_done) == ("failed", 2)
    assert (again.state, again.attempt, again.result) == ("finished", 2, 4)
    reports = served.reported_epochs("retried")
    assert sorted(reports.values()) == [[1, 2], [1, 2, 3, 4]]
