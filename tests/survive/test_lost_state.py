"""A real service and trainings that hold no state: stopped, killed or tried again, none is finished
with epochs that another process has trained.
"""

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.api.job_view import JobView
from tests.support.processes import stop_marked
from tests.support.served_project import Served
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


@deadline_flow(epochs=300, epoch_estimate="1s", model="own", resumes=True)
def keeps_its_own(training: Training, gate: str) -> int:
    file = training.folder / "count"
    count = int(file.read_text()) if file.exists() else 0
    for epoch in training.epochs():
        while epoch > 3 and not (HERE / gate).exists():
            time.sleep(0.02)
        count += 1
        file.write_text(str(count))
        training.log(count=count)
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


class OneSlot(Served):
    slots = 1


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "work.py").write_text(CODE)
    (tmp_path / "home").mkdir()
    opened = OneSlot(tmp_path / "home")
    yield opened
    opened.processes.stop()
    stop_marked(tmp_path / "home")


def submit(served: Served, function: str, name: str, *more: str) -> None:
    folder = served.home.parent
    done = served.laxity("submit", f"work.py:{function}", "--name", name, *more, cwd=folder)
    assert done.returncode in {0, 7}, done.stderr


def at_its_gate(served: Served, name: str) -> JobView:
    return when(served, name, lambda job: job.epochs_done == 3, "three epochs")


def when(served: Served, name: str, so: Callable[[JobView], bool], what: str) -> JobView:
    until(lambda: so(served.client.job(name)), limit_s=120, what=f"{what} of {name}")
    return served.client.job(name)


def open_gate(served: Served, name: str) -> None:
    (served.home.parent / f"gate-{name}").touch()


def kill_worker(served: Served) -> None:
    """Kill the one process that trains for this service with -9."""
    mark = f"LAXITY_URL=http://127.0.0.1:{served.port}".encode()
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"laxity.worker" in words and mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except (OSError, ValueError):
            continue


def objects(served: Served, kind: str) -> list[Json]:
    """What the cluster on this machine has of a kind."""
    with closing(sqlite3.connect(served.home / "cluster.db")) as store:
        rows = store.execute("SELECT body FROM objects WHERE kind = ?", (kind,)).fetchall()
    return [json.loads(text) for (text,) in rows]


def events(served: Served) -> list[str]:
    return [event["reason"] for event in objects(served, "events")]


def observed_epochs(served: Served, uid: str) -> list[int]:
    with closing(sqlite3.connect(served.home / "laxity.db")) as store:
        query = "SELECT epoch FROM observed_epochs WHERE uid = ? ORDER BY epoch"
        return [epoch for (epoch,) in store.execute(query, (uid,))]


def test_preempted_for_a_promise_it_trains_all_its_epochs_again(served: Served) -> None:
    submit(served, "forgetful", "lost", "-p", "gate=gate-lost")
    known = at_its_gate(served, "lost")
    shown = served.laxity("show", "lost", cwd=served.home).stdout
    submit(served, "urgent", "urgent")
    when(served, "lost", lambda job: job.state == "stopping", "the stop")
    open_gate(served, "lost")
    stopped = when(served, "lost", lambda job: job.preemptions == 1, "the preemption")
    urgent, lost = served.ended("urgent"), served.ended("lost")
    explained = served.laxity("explain", "lost", cwd=served.home).stdout
    log = served.laxity("logs", "lost", cwd=served.home).stdout

    assert known.raw["holds_state"] is False
    assert "nothing was given to training.restore()" in " ".join(shown.split())
    assert stopped.epochs_done < EPOCHS
    assert (urgent.state, urgent.result) == ("finished", "in time")
    assert (lost.state, lost.result, lost.epochs_done) == ("finished", EPOCHS, EPOCHS)
    assert "preempt_stateless" in explained
    assert "stopped_stateless" in explained
    assert log.count("a stop loses all epochs") == 2, "once in each process"
    assert observed_epochs(served, lost.uid) == list(range(1, EPOCHS + 1))


def test_killed_it_counts_from_0_and_trains_all_its_epochs_again(served: Served) -> None:
    submit(served, "forgetful", "lost", "-p", "gate=gate-lost")
    at_its_gate(served, "lost")
    kill_worker(served)
    when(served, "lost", lambda job: job.epochs_done == 0, "nothing left")
    at_its_gate(served, "lost")
    served.kill()  # the next service knows it from the Job and its store
    served.start()
    kill_worker(served)
    when(served, "lost", lambda job: job.epochs_done == 0, "nothing left")
    open_gate(served, "lost")
    lost = served.ended("lost")

    assert (lost.state, lost.result, lost.epochs_done) == ("finished", EPOCHS, EPOCHS)
    assert lost.preemptions == 0
    assert observed_epochs(served, lost.uid) == list(range(1, EPOCHS + 1))
    (reported,) = served.reported_epochs("lost").values()
    assert reported == [1, 2, 3, 1, 2, 3, *range(1, EPOCHS + 1)]


def test_killed_one_that_keeps_its_own_state_goes_on(served: Served) -> None:
    submit(served, "keeps_its_own", "own", "-p", "gate=gate-own")
    known = at_its_gate(served, "own")
    kill_worker(served)
    open_gate(served, "own")
    own = served.ended("own")

    assert known.raw["holds_state"] is True
    assert (own.result, own.epochs_done) == (EPOCHS, EPOCHS)
    assert served.reported_epochs("own")["reports.jsonl"] == list(range(1, EPOCHS + 1))


def test_a_retry_under_the_same_key_begins_at_epoch_1(served: Served) -> None:
    submit(served, "fails_once", "retried", "--key", "k")
    first = served.ended("retried")
    submit(served, "fails_once", "retried", "--key", "k")
    again = served.ended("retried-a2")

    assert (first.state, first.epochs_done) == ("failed", 2)
    assert (again.state, again.attempt, again.result) == ("finished", 2, 4)
    reports = served.reported_epochs("retried")
    assert sorted(reports.values()) == [[1, 2], [1, 2, 3, 4]]


def test_the_job_itself_says_that_it_holds_no_state(served: Served) -> None:
    submit(served, "forgetful", "lost", "-p", "gate=gate-lost")

    until(lambda: "HoldsNoState" in events(served), limit_s=60, what="the Event")

    (job,) = objects(served, "jobs")
    assert json.loads(job["metadata"]["annotations"][names.STATUS])["holds_state"] is False
    assert events(served).count("HoldsNoState") == 1
