"""Epochs reach MLflow once each, whatever was killed; MLflow being away stops nothing."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from laxity import names
from laxity.worker import mlflow_tracking
from laxity.worker.__main__ import save_and_stop
from laxity.worker.mlflow_tracking import (
    EPOCHS_PER_FLUSH,
    POINTS_HANDED_OVER,
    EpochMetrics,
    Tracker,
    series_name,
)
from laxity.worker.sigterm import EXIT_STOPPED, SigtermHandler
from tests.support.job_workers import PATIENCE_S, JobWorkers, kill
from tests.support.mlflow_store import copy_store
from tests.support.training_service import Service

if TYPE_CHECKING:
    from mlflow import MlflowClient

pytestmark = pytest.mark.slow
# Epochs go to MLflow while the training waits at a gate: at its end they have some seconds only.
LONG = EPOCHS_PER_FLUSH + 5


def client_of(uri: str) -> "MlflowClient":
    from mlflow import MlflowClient

    return MlflowClient(uri)


@pytest.fixture(scope="module")
def uri(blank_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("mlflow")
    found = copy_store(blank_mlflow, folder)
    client_of(found).create_experiment("laxity", artifact_location=str(folder / "artifacts"))
    return found


def series(client: "MlflowClient", run_id: str, key: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client.get_metric_history(run_id, key)]


def run_of(client: "MlflowClient", uid: str) -> Any:
    experiment = client.get_experiment_by_name("laxity")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`laxity.uid` = '{uid}'")
    return run


def is_logged(client: "MlflowClient", uid: str) -> bool:
    """Whether the run of this job is there and has epochs."""
    experiments = [row.experiment_id for row in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`laxity.uid` = '{uid}'")
    return any(series(client, run.info.run_id, names.EPOCH_ACTUAL) for run in runs)


@pytest.fixture
def given(uri: str, service: Service) -> str:
    """A run that the service made at the verdict."""
    client = client_of(uri)
    experiment = client.get_experiment_by_name("laxity")
    assert experiment is not None
    run_id = client.create_run(experiment.experiment_id).info.run_id
    service.order(run_id=run_id)
    return str(run_id)


def test_epochs_are_logged_once_over_kills_and_starts(
    uri: str, tmp_path: Path, service: Service
) -> None:
    client = client_of(uri)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=LONG)
    environ = {"MLFLOW_TRACKING_URI": uri, "LAXITY_JOB_UID": "uid-kills"}
    job_workers.open_gate(EPOCHS_PER_FLUSH)
    worker = job_workers.start(environ=environ)
    job_workers.until(lambda: is_logged(client, "uid-kills"), "epochs in MLflow")
    job_workers.open_gate(EPOCHS_PER_FLUSH + 1)
    job_workers.until_noted("began", epoch=EPOCHS_PER_FLUSH + 2)
    kill(worker)

    client.set_terminated(run_of(client, "uid-kills").info.run_id, "KILLED")
    again = job_workers.start(environ=environ)
    job_workers.until(lambda: run_of(client, "uid-kills").info.status == "RUNNING", "it goes on")
    job_workers.open_gate()
    code = again.wait(PATIENCE_S)

    run = run_of(client, "uid-kills")
    told = service.of("epoch")
    assert code == 0
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "a"
    assert {key: run.data.tags[key] for key in ("laxity.job", "laxity.model")} == {
        "laxity.job": "team/a",
        "laxity.model": "tiny",
    }
    assert series(client, run.info.run_id, "epoch_s/actual") == [
        (line["epoch"], line["epoch_s"]) for line in told
    ]
    steps = range(1, LONG + 1)
    assert series(client, run.info.run_id, "workers") == [(n, 1.0) for n in steps]
    assert series(client, run.info.run_id, "epoch_bytes/read") == [(n, 100.0) for n in steps]
    assert [step for step, _ in series(client, run.info.run_id, "loss")] == [*steps]


def test_the_services_run_is_used_and_nan_stays_out(
    uri: str, given: str, tmp_path: Path, service: Service
) -> None:
    client = client_of(uri)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=LONG)
    job_workers.open_gate(EPOCHS_PER_FLUSH)
    worker = job_workers.start("odd_figures", environ={"MLFLOW_TRACKING_URI": uri})
    job_workers.until(lambda: bool(series(client, given, "epoch_s/actual")), "epochs in MLflow")
    job_workers.open_gate()
    code = worker.wait(PATIENCE_S)

    losses = series(client, given, "loss")
    assert code == 0
    assert [step for step, _ in losses] == [1, *range(3, LONG + 1)]
    assert all(math.isfinite(value) for _, value in losses)
    steps = [step for step, _ in series(client, given, "epoch_s/actual")]
    assert steps == [*range(1, LONG + 1)]


ODD_NAMES = ("acc@1", "loss (train)", "/a//b/../c/", ".", "", "mAP%", "x" * 300, "schön/val acc")


def test_a_metric_that_mlflow_would_refuse_is_renamed_and_costs_no_other(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = client_of(uri)
    experiment = client.get_experiment_by_name("laxity")
    assert experiment is not None
    run_id = client.create_run(experiment.experiment_id).info.run_id
    tracker = Tracker(uri, tags={}, given_run_id=lambda: run_id)

    for epoch in (1, 2):
        values = dict.fromkeys(ODD_NAMES, 0.5) | {names.EPOCH_ACTUAL: 2.0}
        tracker.add([EpochMetrics(epoch, 1_000.0 + epoch, values)])
    assert tracker.flush(at_most_s=PATIENCE_S)

    renamed = {name: series(client, run_id, series_name(name)) for name in ODD_NAMES}
    assert all(points == [(1, 0.5), (2, 0.5)] for points in renamed.values())
    assert len(series(client, run_id, names.EPOCH_ACTUAL)) == 2
    assert capsys.readouterr().err.count("'acc@1' is 'acc_1' in MLflow") == 1


def test_a_server_that_does_not_answer_costs_one_notice_and_no_time(
    dead_server: str, tmp_path: Path, service: Service
) -> None:
    job_workers = JobWorkers(tmp_path, url=service.url)
    job_workers.open_gate()

    worker = job_workers.start(environ={"MLFLOW_TRACKING_URI": dead_server})
    service.until_reported("finished")
    reported_at = time.monotonic()
    code = worker.wait(PATIENCE_S)

    assert code == 0
    assert time.monotonic() - reported_at < 10.0
    assert job_workers.log().count("does not answer") == 1


def test_nothing_is_handed_over_once_mlflow_is_open_or_where_too_much_waits(uri: str) -> None:
    client = client_of(uri)
    experiment = client.get_experiment_by_name("laxity")
    assert experiment is not None
    run_id = client.create_run(experiment.experiment_id).info.run_id
    point = EpochMetrics(1, 1_000.0, {names.EPOCH_ACTUAL: 2.0})
    tracker = Tracker(uri, tags={}, given_run_id=lambda: run_id)
    tracker.add([point])
    assert tracker.flush(at_most_s=PATIENCE_S)
    tracker.add([point])
    much = Tracker("http://127.0.0.1:9", tags={})
    much.add([point] * (POINTS_HANDED_OVER + 1))

    assert tracker.take_unlogged() == []
    assert much.take_unlogged() == []
    assert much.take_left(starts_again=True) == []
    assert len(much.take_left(starts_again=False)) == POINTS_HANDED_OVER


def test_a_worker_that_is_stopped_hands_over_what_an_open_mlflow_does_not_take(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Tracker(uri, tags={names.TAG_UID: "stopped"})
    tracker.add([EpochMetrics(1, 1_000.0, {names.EPOCH_ACTUAL: 2.0})])
    assert tracker.flush(at_most_s=60.0)
    monkeypatch.setattr(mlflow_tracking, "require_answer", raise_connection_error)
    tracker.add([EpochMetrics(2, 1_002.0, {names.EPOCH_ACTUAL: 3.0})])
    appended: list[tuple[str, list[int]]] = []
    reports = SimpleNamespace(
        takes_points=lambda: True,
        append=lambda kind, points: appended.append((kind, [point["epoch"] for point in points])),
        drain=lambda at_most_s: at_most_s > 0,
    )
    state = SimpleNamespace(rank=0, environment=SimpleNamespace(folder=None))
    run: Any = SimpleNamespace(
        save_rest=lambda: None, state=state, tracker=tracker, reports=reports
    )

    assert save_and_stop(run, SigtermHandler()) == EXIT_STOPPED
    assert appended == [("stopped", [2])]


def raise_connection_error(_: str) -> None:
    raise ConnectionError("nobody is there")


@pytest.mark.parametrize(("is_open", "flushes"), [(False, 0), (True, 1)])
def test_a_worker_that_is_stopped_waits_for_mlflow_only_where_it_is_open(
    flushes: int, *, is_open: bool
) -> None:
    waits: list[float] = []
    tracker = SimpleNamespace(opened=is_open, flush=lambda at_most_s, **_: waits.append(at_most_s))
    state = SimpleNamespace(rank=0, environment=SimpleNamespace(folder=None))
    run: Any = SimpleNamespace(save_rest=lambda: None, state=state, tracker=tracker, reports=None)

    assert save_and_stop(run, SigtermHandler()) == EXIT_STOPPED
    assert len(waits) == flushes


def test_the_codes_own_runs_are_the_trainings_run(
    uri: str, given: str, tmp_path: Path, service: Service
) -> None:
    client = client_of(uri)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=3)

    code = job_workers.run("own_logging", environ={"MLFLOW_TRACKING_URI": uri})

    run = client.get_run(given)
    assert code == 0, job_workers.log()
    assert job_workers.result() == [given] * 5
    assert run.data.params == {"alpha": "0.001"}
    assert series(client, given, "own") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert [step for step, _ in series(client, given, "epoch_s/actual")] == [1, 2, 3]
    assert run.info.status == "FINISHED"


def test_parameters_of_an_earlier_start_keep_their_values(
    uri: str, given: str, tmp_path: Path, service: Service
) -> None:
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=3)
    job_workers.open_gate(1)
    worker = job_workers.start("logs_its_start", environ={"MLFLOW_TRACKING_URI": uri})
    job_workers.until_noted("began", epoch=2)
    kill(worker)
    job_workers.open_gate()

    code = job_workers.run("logs_its_start", environ={"MLFLOW_TRACKING_URI": uri})

    assert (code, job_workers.result()) == (0, given), job_workers.log()
    first = {"start_epoch": "0", "alpha": "0.5", "began_at": "0", "of_0": "1"}
    assert client_of(uri).get_run(given).data.params == first | {"of_1": "1"}
    assert (
        "MLflow keeps start_epoch='0' of an earlier start; '1' is not logged" in job_workers.log()
    )


def test_nested_runs_stay_in_the_experiment_of_the_trainings_run(
    uri: str, given: str, tmp_path: Path, service: Service
) -> None:
    client = client_of(uri)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=2)

    code = job_workers.run("nested", environ={"MLFLOW_TRACKING_URI": uri})

    experiment = client.get_run(given).info.experiment_id
    assert code == 0, job_workers.log()
    assert job_workers.result() == [experiment] * 2
    folds = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{given}'")
    assert sorted(fold.data.metrics["fold"] for fold in folds) == [1.0, 2.0]


def test_autolog_writes_to_the_trainings_run(
    uri: str, given: str, tmp_path: Path, service: Service
) -> None:
    client = client_of(uri)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=2)

    code = job_workers.run("autologged", environ={"MLFLOW_TRACKING_URI": uri})

    run = client.get_run(given)
    assert code == 0, job_workers.log()
    assert job_workers.result() == given
    assert run.data.params["alpha"] == "0.001"
    assert "training_score" in run.data.metrics
    assert [
        found.info.run_id
        for found in client.search_runs([run.info.experiment_id])
        if "training_score" in found.data.metrics
    ] == [given]


def test_code_that_chooses_an_experiment_logs_there(
    uri: str, given: str, tmp_path: Path, service: Service
) -> None:
    client = client_of(uri)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=2)

    code = job_workers.run("own_experiment", environ={"MLFLOW_TRACKING_URI": uri})

    own = client.get_run(job_workers.result())
    chosen = client.get_experiment_by_name("digits")
    assert code == 0, job_workers.log()
    assert chosen is not None
    assert own.info.experiment_id == chosen.experiment_id
    assert "mlflow.set_experiment leads to a run of its own" in job_workers.log()
    assert [step for step, _ in series(client, given, "epoch_s/actual")] == [1, 2]


def test_training_code_without_mlflow_and_prefect_imports_neither(
    tmp_path: Path, service: Service
) -> None:
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=2)

    code = job_workers.run(
        "plain", environ={"LAXITY_FLOW_RUN": "1b4e28ba-2fa1-11d2-883f-0016d3cca427"}
    )

    assert code == 0
    assert job_workers.result() == []


def test_a_store_that_cannot_be_opened_costs_one_notice(tmp_path: Path, service: Service) -> None:
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=LONG)
    job_workers.open_gate(EPOCHS_PER_FLUSH)
    (tmp_path / "file").touch()
    nowhere = f"sqlite:///{tmp_path}/file/mlflow.db"  # a file cannot hold another

    worker = job_workers.start(environ={"MLFLOW_TRACKING_URI": nowhere})
    job_workers.until(lambda: "does not take the epochs" in job_workers.log(), "the notice")
    job_workers.open_gate()

    assert worker.wait(PATIENCE_S) == 0
    assert [line["epoch"] for line in service.of("epoch")] == [*range(1, LONG + 1)]
    assert job_workers.log().count("does not take the epochs") == 1


def test_a_script_that_nobody_schedules_has_one_run_over_its_starts(
    uri: str, tmp_path: Path
) -> None:
    client = client_of(uri)
    script = tmp_path / "alone.py"
    script.write_text(
        "import sys\n"
        "from laxity import Training\n"
        "training = Training(3, folder='kept')\n"
        "training.restore({'n': 0})\n"
        "for epoch in training.epochs():\n"
        "    training.log(loss=1 / epoch)\n"
        "    if epoch == 2 and sys.argv[1:]:\n"
        "        sys.exit(5)\n"
        "training.log(score=7.0)\n"
    )
    environ = {**os.environ, "MLFLOW_TRACKING_URI": uri}

    codes = [
        subprocess.run(
            [sys.executable, str(script), *argument], env=environ, cwd=tmp_path, check=False
        ).returncode
        for argument in (["stop"], [])
    ]

    run = run_of(client, str(tmp_path / "kept"))
    assert codes == [5, 0]
    assert run.info.status == "FINISHED"
    assert [step for step, _ in series(client, run.info.run_id, "epoch_s/actual")] == [1, 2, 3]
    assert series(client, run.info.run_id, "score") == [(3, 7.0)]
