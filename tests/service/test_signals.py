"""Workers' calls: reports are taken once, orders arrive at once, an absent service loses nothing."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from laxity_profiler.history.history import History
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import Charts, Stage, staged, wait_until

Json = dict[str, Any]


def epoch(seq: int, number: int, at: float) -> Json:
    return {
        "seq": seq, "kind": "epoch", "at": at, "epoch": number, "epoch_s": 1.5, "width": 1,
        "bytes": 0, "warmup": False, "metrics": {},
    }  # fmt: skip


def running(stage: Stage, name: str = "a", **said: Any) -> Json:
    return stage.run(name, **({"deadline": "1h", "widths": "1"} | said))


def call(stage: Stage, job: str = "default/a", **body: Any) -> Any:
    """The call of the job's workers, by its own uid unless another one is given."""
    uid = body.pop("uid", "") or stage.http.get(f"/v1/jobs/{job}").json()["uid"]
    return stage.http.post(f"/v1/jobs/{job}/signal", json={"uid": uid, "worker": 0, **body})


def test_reports_are_taken_once_however_often_they_are_sent(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = running(stage)
        at = view["submitted_at"]
        lines = [epoch(1, 1, at + 1), epoch(2, 2, at + 2)]
        answers = [call(stage, reports=lines).json(), call(stage, reports=lines).json()]
        done = stage.until("default/a", lambda view: view["epochs_done"] == 2, "two epochs on")
    assert [answer["acked"] for answer in answers] == [2, 2]
    assert done["epochs_done"] == 2


@pytest.mark.parametrize("behind_s", [36_000.0, -36_000.0])
def test_a_worker_with_another_clock_is_heard_in_ours(tmp_path: Path, behind_s: float) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = running(stage)
        now = time.time() - behind_s
        call(stage, sent_at=now, reports=[epoch(1, 1, now - 0.5)])
        heard_at = stage.history.report(view["uid"]).since
    assert heard_at == pytest.approx(time.time(), abs=30.0)


def test_reports_that_a_dead_service_took_are_known_to_the_next(tmp_path: Path) -> None:
    world = MemoryWorld(1)
    with staged(tmp_path, world) as stage:
        view = running(stage)
        call(stage, reports=[epoch(1, 1, view["submitted_at"] + 1)])
    with staged(tmp_path, world) as again:
        answer = call(again, reports=[]).json()
        later = again.until("default/a", lambda view: view["epochs_done"] == 1, "one epoch on")
    assert answer["acked"] == 1
    assert later["state"] == "running"


def test_epochs_are_kept_with_the_nodes_that_the_workers_lay_on(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        running(stage)
        started_at = stage.service.last_snapshot[0].by_id["default/a"].resumed_at or 0.0
        call(stage, reports=[epoch(1, 1, started_at - 60.0), epoch(2, 2, started_at + 1.0)])
        (run,) = stage.history.epochs("mlp")
    assert [one.nodes for one in run.epochs] == [None, 1]  # where it was before nobody knows


def test_nonsense_among_the_reports_harms_no_other_line(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = running(stage)
        lines: list[Any] = [None, "x", {"seq": 1, "kind": "dance"}, {"seq": -1}]
        lines += [epoch(2, 1, view["submitted_at"] + 1)]
        answer = call(stage, reports=lines)
        done = stage.until("default/a", lambda view: view["epochs_done"] == 1, "one epoch on")
    assert answer.status_code == 200
    assert answer.json()["acked"] == 2
    assert done["verdict"] == "promised"


def test_points_of_a_worker_that_ends_before_it_opened_mlflow_are_logged_here(
    tmp_path: Path,
) -> None:
    charts = Charts()
    with staged(tmp_path, MemoryWorld(1), listeners=[charts]) as stage:
        at = running(stage)["submitted_at"] + 1
        points = [
            {"epoch": 1, "at": at, "values": {"loss": 0.5}},
            {"epoch": "x", "at": at, "values": {"loss": 0.4}},
            {"epoch": 2, "at": at, "values": {"loss": 0.3}},
            None,
        ]
        last = {"seq": 2, "kind": "finished", "at": at, "result": None, "points": points}
        answer = call(stage, reports=[epoch(1, 1, at), last]).json()
        wait_until(lambda: len(charts.values()) == 2, "both readable points")
    assert answer["logs_points"] is True
    assert charts.values() == [(1, 0.5), (2, 0.3)]


def test_a_service_without_mlflow_asks_for_no_points(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        running(stage)
        answer = call(stage, reports=[]).json()
    assert answer["logs_points"] is False


def test_a_worker_who_waits_is_told_to_stop_at_once(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=5.0)) as stage:
        running(stage, "long", deadline=None, epochs=1000)
        told: list[Json] = []
        generation = call(stage, "default/long").json()["generation"]
        waiting = threading.Thread(
            target=lambda: told.append(
                call(stage, "default/long", generation=generation, wait_s=25.0).json()
            )
        )
        waiting.start()
        wait_until(
            lambda: bool(stage.service.notifier.subscribers("signal:")), "a worker who waits"
        )
        stage.submit("urgent", deadline="70s", widths="1")
        waiting.join(timeout=15.0)
        assert told, "told only when the poll ended"
        view = stage.until("default/long", lambda view: view["state"] == "stopping", "stopping")
    assert told[0]["stop"] is True
    assert view["reason_code"] == "preempt_for"


def test_a_parked_job_is_stopped_and_its_gpus_go_to_the_one_they_were_freed_for(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=5.0)) as stage:
        running(stage, "long", deadline=None, epochs=1000)
        stage.submit("urgent", deadline="70s", widths="1")
        stage.until("default/long", lambda view: view["state"] == "stopping", "stopping")
        stage.world.parked("default/long", 1)
        urgent = stage.until("default/urgent", lambda view: view["workers"] > 0, "running")
        stopped = stage.until("default/long", lambda view: view["state"] == "suspended", "stopped")
    assert urgent["verdict"] == "promised"
    assert (stopped["preemptions"], stopped["width_history"][-1][1]) == (1, 0)


def test_many_workers_may_wait_without_the_service_getting_slow(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        running(stage)
        generation = call(stage).json()["generation"]
        waiting = [
            threading.Thread(target=lambda: call(stage, generation=generation, wait_s=20.0))
            for _ in range(60)
        ]
        for thread in waiting:
            thread.start()
        wait_until(
            lambda: sum(map(len, stage.service.notifier._waiters.values())) >= 60, "60 who wait"
        )
        assert stage.http.get("/v1/jobs").status_code == 200
        stage.world.finished("default/a")
        for thread in waiting:
            thread.join(timeout=20.0)
        assert not any(thread.is_alive() for thread in waiting)


def test_reports_of_an_earlier_job_of_the_same_name_are_not_for_this_one(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        running(stage)
        answer = call(stage, uid="another", reports=[epoch(1, 1, 1.0)])
    assert answer.status_code == 409


def test_a_history_that_is_away_is_said_and_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: Any
) -> None:
    from laxity_profiler.history.history_database import HistoryError

    def away(*_args: Any, **_more: Any) -> int:
        raise HistoryError("the history is away")

    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = running(stage)
        with monkeypatch.context() as patch:
            patch.setattr(History, "ingest", away)
            lost = call(stage, reports=[epoch(1, 1, view["submitted_at"] + 1)])
        taken = call(stage, reports=[epoch(1, 1, view["submitted_at"] + 1)])
    assert (lost.status_code, taken.status_code) == (503, 200)
    assert taken.json()["acked"] == 1
