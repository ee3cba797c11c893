"""Reports that a worker could not send to a service that was away are read when it is back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laxity import names
from laxity_profiler.history.history import History, HistoryError
from laxity_profiler.history.history_database import open_engine
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.tables import WaitingPointsRow
from tests.support.local_service import LocalService, local_service
from tests.support.memory_world import MemoryWorld
from tests.support.mlflow_store import copy_store, mlflow_server
from tests.support.processes import free_ports
from tests.support.services import Charts, Stage, staged, wait_until
from tests.support.waiting import until

if TYPE_CHECKING:
    from mlflow import MlflowClient

Json = dict[str, Any]
EPOCHS = 4
TRAIN = """
import time
from pathlib import Path

def train(training):
    for epoch in training.epochs():
        while epoch > 2 and not Path(__file__).with_name("go").exists():
            time.sleep(0.01)
        training.log(loss=1.0 / epoch)
    return "whole"
"""


def lines_of(began_at: float) -> list[Json]:
    """What worker 0 of a job writes that trains three epochs; its last line has points for MLflow."""
    points = [
        {"epoch": epoch, "at": began_at + epoch, "values": {"loss": 1.0 / epoch}}
        for epoch in (1, 2, 3)
    ]
    fields: list[Json] = [
        {"kind": "started", "width": 1},
        {"kind": "formed", "width": 1, "epoch": 0},
        *({"kind": "epoch", "epoch": n, "width": 1, "epoch_s": n, "bytes": 0} for n in (1, 2, 3)),
        {"kind": "finished", "result": 0.9, "points": points},
    ]
    return [{"seq": n, "at": began_at + n, **line} for n, line in enumerate(fields, 1)]


def train_without_a_service(home: Path, world: MemoryWorld, path: Path) -> None:
    """Job a: the service hears of its first epoch and is gone when the worker writes the rest."""
    with staged(home, world) as stage:
        view = stage.run("a", epochs=3, widths="1")
        lines = lines_of(view["submitted_at"])
        body = {"uid": view["uid"], "worker": 0, "reports": lines[:3]}
        assert stage.http.post("/v1/jobs/default/a/signal", json=body).json()["acked"] == 3
    world.finished("default/a")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"seq": 7, "torn')


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which worker 0 of every job writes."""
    path = tmp_path / "reports.jsonl"
    monkeypatch.setattr(MemoryWorld, "reports_path", lambda *_: str(path))
    return path


def ended(stage: Stage) -> Json:
    return stage.until("default/a", lambda view: view["state"] == "finished", "finished")


def test_a_service_that_is_back_reads_the_reports_of_a_worker_that_has_exited(
    tmp_path: Path, reports: Path
) -> None:
    world, charts = MemoryWorld(1), Charts(answers=False)
    train_without_a_service(tmp_path, world, reports)
    with staged(tmp_path, world, listeners=[charts]) as stage:
        view = ended(stage)
        charts.answers.set()
        wait_until(lambda: bool(charts.values()), "the points in MLflow")
        wait_until(lambda: not stage.service.store.load_rows(WaitingPointsRow), "nothing waiting")
        (model,) = stage.history.news(epochs_after=0, stops_after=0).epochs
        (run,) = stage.history.epochs(model)

    assert [(epoch.epoch, epoch.epoch_s) for epoch in run.epochs] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert (view["epochs_done"], view["result"]) == (3, 0.9)
    assert charts.values() == [(1, 1.0), (2, 0.5), (3, 1 / 3)]


def test_reports_that_the_store_does_not_take_at_once_are_read_in_a_later_cycle(
    tmp_path: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, ingest = MemoryWorld(1), History.ingest
    failures = iter([HistoryError("the disk is full")])

    def fail_once(*arguments: Any, **named: Any) -> int:
        for failure in failures:
            raise failure
        return ingest(*arguments, **named)

    train_without_a_service(tmp_path, world, reports)
    monkeypatch.setattr(History, "ingest", fail_once)
    with staged(tmp_path, world) as stage:
        world.wake()
        view = stage.until("default/a", lambda view: view["epochs_done"] == 3, "whole")

    assert next(failures, None) is None
    assert view["result"] == 0.9


@pytest.mark.parametrize("content", [None, "no json\n[]\n{}\n"])
def test_a_job_whose_reports_cannot_be_read_is_shown_as_ended(
    content: str | None, tmp_path: Path, reports: Path
) -> None:
    world = MemoryWorld(1)
    train_without_a_service(tmp_path, world, reports)
    reports.unlink()
    if content is not None:
        reports.write_text(content)
    with staged(tmp_path, world) as stage:
        view = ended(stage)

    assert view["epochs_done"] == 1


@pytest.fixture(params=["the worker logs", "the service logs"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalService]:
    """A service whose MLflow is away, as nobody listens at its address yet."""
    uri = f"http://127.0.0.1:{free_ports(1)[0]}"
    tracked_by = {names.ENV_TRACKED_BY: "" if "worker" in request.param else "service"}
    given = {"LAXITY_SAVING_SHARE": "1", **tracked_by}
    with local_service(tmp_path / "home", tracking_uri=uri, **given) as service:
        yield service


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_epochs_after_the_service_was_killed_are_in_history_and_mlflow_once(
    served: LocalService, tmp_path: Path, blank_mlflow: Path
) -> None:
    (tmp_path / "long.py").write_text(TRAIN)
    submit = ("submit", "long.py:train", "--name", "long", "--epochs", str(EPOCHS))
    submitted = served.laxity(*submit, "--workers", "1", "--estimate", "1s", cwd=tmp_path)
    assert submitted.returncode == 0, submitted.stderr
    until(lambda: served.client.job("long").epochs_done == 2, limit_s=60, what="two epochs")
    served.kill()
    (tmp_path / "go").touch()
    exits = served.home.glob
    until(lambda: list(exits("pods/*/exit.json")), limit_s=180, what="the worker's exit")
    (tmp_path / "mlflow").mkdir()
    copy_store(blank_mlflow, tmp_path / "mlflow")
    port = int(served.environment["MLFLOW_TRACKING_URI"].rpartition(":")[2])
    with mlflow_server(tmp_path / "mlflow", port=port) as uri:
        served.start()
        job = served.ended("long")
        from mlflow import MlflowClient

        client = MlflowClient(uri)
        until(lambda: is_finished(client), limit_s=120, what="the end of the run in MLflow")
        actual, losses = series(client, names.EPOCH_ACTUAL), series(client, "loss")

    reported = reported_epochs(served)
    assert [epoch for epoch, _ in reported] == [1, 2, 3, 4]
    assert (job.state, job.result, job.epochs_done) == ("finished", "whole", EPOCHS)
    assert actual == reported
    assert losses == [(epoch, 1.0 / epoch) for epoch, _ in reported]
    assert epochs_in_history(served) == reported


def is_finished(client: "MlflowClient") -> bool:
    experiment = client.get_experiment_by_name("laxity")
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    return [run.info.status for run in runs] == ["FINISHED"]


def series(client: "MlflowClient", name: str) -> list[tuple[int, float]]:
    experiment = client.get_experiment_by_name("laxity")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]


def reported_epochs(served: LocalService) -> list[tuple[int, float]]:
    """Epochs and their seconds as the worker wrote them down."""
    (path,) = (served.home / "checkpoints" / "default").glob("long-*/reports.jsonl")
    lines = map(json.loads, path.read_text().splitlines())
    return [(line["epoch"], line["epoch_s"]) for line in lines if line["kind"] == "epoch"]


def epochs_in_history(served: LocalService) -> list[tuple[int, float]]:
    engine = open_engine(Settings(home=served.home).store_url)
    try:
        history = History(engine)
        (model,) = history.news(epochs_after=0, stops_after=0).epochs
        (run,) = history.epochs(model)
    finally:
        engine.dispose()
    return [(epoch.epoch, epoch.epoch_s) for epoch in run.epochs]
