"""Epochs that the service is to log to MLflow survive its kill, however long MLflow is away."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laxity import names
from laxity_scheduler.store.store import StoreError
from laxity_scheduler.store.tables import WaitingPointsRow
from tests.support.local_service import LocalService, local_service
from tests.support.memory_world import MemoryWorld
from tests.support.mlflow_store import copy_store
from tests.support.services import Charts, Stage, staged, wait_until
from tests.support.waiting import until

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

Json = dict[str, Any]
EPOCHS = 3
TRAIN = """
import time
from pathlib import Path

def train(training):
    for epoch in training.epochs():
        while not Path(__file__).with_name("go").exists():
            time.sleep(0.01)
        training.log(loss=1.0 / epoch)
"""


def hand_over(stage: Stage, view: Json) -> Any:
    """What the service answers to a worker that ended before it had opened MLflow."""
    at = view["submitted_at"] + 1.0
    points = [
        {"epoch": epoch, "at": at + epoch, "values": {"loss": 1.0 / epoch}} for epoch in (1, 2)
    ]
    last = {"seq": 1, "kind": "finished", "at": at, "result": None, "points": points}
    body = {"uid": view["uid"], "worker": 0, "reports": [last]}
    return stage.http.post(f"/v1/jobs/{view['id']}/signal", json=body)


def test_points_that_mlflow_did_not_take_are_logged_once_after_a_restart(tmp_path: Path) -> None:
    world, back, later = MemoryWorld(1), Charts(), Charts()
    with staged(tmp_path, world, listeners=[Charts(is_away=True)]) as stage:
        view = stage.run("a", deadline="1h", widths="1")
        answer = hand_over(stage, view)
    with staged(tmp_path, world, listeners=[back]) as stage:
        wait_until(lambda: len(back.values("loss")) == 2, "both epochs in MLflow")
        wait_until(lambda: not stage.service.store.load_rows(WaitingPointsRow), "nothing waiting")
    with staged(tmp_path, world, listeners=[later]) as stage:
        stage.submit("b", deadline="2h", widths="1")
        wait_until(lambda: later.delivered > 0, "another job in MLflow")

    assert answer.json()["acked"] == 1
    assert back.values("loss") == [(1, 1.0), (2, 0.5)]
    assert [epoch for epoch, _ in back.values(names.EPOCH_P50)] == [1], "prediction beside truth"
    assert later.values("loss") == []


def test_a_worker_gets_no_answer_before_its_points_are_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charts = Charts()
    with staged(tmp_path, MemoryWorld(1), listeners=[charts]) as stage:
        view = stage.run("a", deadline="1h", widths="1")
        with monkeypatch.context() as broken:
            broken.setattr(stage.service.store, "save_rows", raise_store_error)
            first = hand_over(stage, view)
        second = hand_over(stage, view)
        wait_until(lambda: bool(charts.values("loss")), "the epochs in MLflow")

    assert (first.status_code, second.status_code) == (503, 200)
    assert charts.values("loss") == [(1, 1.0), (2, 0.5)]


def raise_store_error(*_: Any) -> None:
    raise StoreError("the disk is full")


def test_points_that_cannot_be_read_any_more_cost_no_other_job_its_points(tmp_path: Path) -> None:
    world, back = MemoryWorld(2), Charts()
    with staged(tmp_path, world, listeners=[Charts(is_away=True)]) as stage:
        for name in ("a", "b"):
            stage.submit(name, deadline="1h", widths="1")
            view = stage.until(f"default/{name}", lambda view: view["workers"] > 0, "running")
            hand_over(stage, view)
        store = stage.service.store
        spoiled = [row for row in store.load_rows(WaitingPointsRow) if row.uid != view["uid"]]
        for row in spoiled:
            row.body = b"\xff"
        store.replace_rows(spoiled)
    with staged(tmp_path, world, listeners=[back]) as stage:
        wait_until(lambda: len(back.values("loss")) == 2, "the epochs of the other job")
        metrics = stage.http.get("/metrics").text

    assert back.values("loss") == [(1, 1.0), (2, 0.5)]
    assert 'laxity_job_errors_total{stage="waiting points"}' in metrics


@pytest.fixture(params=["a worker hands them over", "the service logs each"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalService]:
    """A service whose MLflow is away: where its folder should be is a file."""
    (tmp_path / "tracking").touch()
    home, uri = tmp_path / "home", f"sqlite:///{tmp_path}/tracking/mlflow.db"
    tracked_by = {names.ENV_TRACKED_BY: "" if "worker" in request.param else "service"}
    with local_service(home, tracking_uri=uri, LAXITY_SAVING_SHARE="1", **tracked_by) as service:
        yield service


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_training_is_whole_in_mlflow_though_the_service_was_killed_meanwhile(
    served: LocalService, tmp_path: Path, blank_mlflow: Path
) -> None:
    (tmp_path / "short.py").write_text(TRAIN)
    submit = ("submit", "short.py:train", "--name", "short", "--epochs", str(EPOCHS))
    terms = ("--deadline", "10m", "--workers", "1", "--estimate", "1s")
    submitted = served.laxity(*submit, *terms, cwd=tmp_path)
    until(lambda: served.client.job("short").state == "running", limit_s=60, what="it to run")
    (tmp_path / "go").touch()
    job = served.ended("short")
    served.kill()
    (tmp_path / "tracking").unlink()
    (tmp_path / "tracking").mkdir()
    uri = copy_store(blank_mlflow, tmp_path / "tracking")
    served.start()

    from mlflow import MlflowClient

    client = MlflowClient(uri)
    until(lambda: is_finished(client), limit_s=120, what="the end of the run in MLflow")

    (run,) = runs_of(client)
    actual = client.get_metric_history(run.info.run_id, names.EPOCH_ACTUAL)
    predicted = client.get_metric_history(run.info.run_id, names.EPOCH_P50)
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert (submitted.returncode, job.state) == (0, "finished"), submitted.stderr
    assert [(point.step, point.value) for point in actual] == reported_epochs(served)
    assert [(point.step, point.value) for point in losses] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert 1 in [point.step for point in predicted]
    assert {names.FINAL_ACTUAL, names.FINAL_PREDICTED} <= set(run.data.metrics)


def runs_of(client: "MlflowClient") -> "list[Run]":
    experiment = client.get_experiment_by_name("laxity")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def is_finished(client: "MlflowClient") -> bool:
    return [run.info.status for run in runs_of(client)] == ["FINISHED"]


def reported_epochs(served: LocalService) -> list[tuple[int, float]]:
    """Epochs and their seconds as the worker wrote them down."""
    (path,) = (served.home / "checkpoints" / "default").glob("short-*/reports.jsonl")
    lines = map(json.loads, path.read_text().splitlines())
    return [(line["epoch"], line["epoch_s"]) for line in lines if line["kind"] == "epoch"]
