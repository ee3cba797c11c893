"""Epochs reach MLflow once each, whatever was killed; MLflow being away stops nothing."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.training.crew import Crew
from tests.training.service import Service

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A local store; making one takes seconds."""
    folder: Path = tmp_path_factory.mktemp("mlflow")
    found = f"sqlite:///{folder}/mlflow.db"
    MlflowClient(found).create_experiment("laxity", artifact_location=str(folder / "artifacts"))
    return found


def series(client: MlflowClient, run_id: str, key: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client.get_metric_history(run_id, key)]


def run_of(client: MlflowClient, uid: str) -> Any:
    experiment = client.get_experiment_by_name("laxity")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`laxity.uid` = '{uid}'")
    return run


def test_epochs_are_logged_once_over_kills_and_starts(
    uri: str, tmp_path: Path, service: Service
) -> None:
    client = MlflowClient(uri)
    crew = Crew(tmp_path, url=service.url, epochs=5)
    environ = {"MLFLOW_TRACKING_URI": uri, "LAXITY_JOB_UID": "uid-kills"}
    crew.open_gate(3)
    worker = crew.start(environ=environ)
    crew.until_noted("began", epoch=4)
    worker.send_signal(signal.SIGKILL)
    worker.wait(30)

    crew.open_gate()
    code = crew.run(environ=environ)

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
    assert series(client, run.info.run_id, "workers") == [(n, 1.0) for n in range(1, 6)]
    assert series(client, run.info.run_id, "epoch_bytes/read") == [(n, 100.0) for n in range(1, 6)]
    assert [step for step, _ in series(client, run.info.run_id, "loss")] == [1, 2, 3, 4, 5]


def test_the_services_run_is_used_and_nan_stays_out(
    uri: str, tmp_path: Path, service: Service
) -> None:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("laxity")
    assert experiment is not None
    given = client.create_run(experiment.experiment_id).info.run_id
    service.order(run_id=given)
    crew = Crew(tmp_path, url=service.url)

    code = crew.run("odd_figures", environ={"MLFLOW_TRACKING_URI": uri})

    losses = series(client, given, "loss")
    assert code == 0
    assert [step for step, _ in losses] == [1, 3, 4]
    assert all(math.isfinite(value) for _, value in losses)
    assert [step for step, _ in series(client, given, "epoch_s/actual")] == [1, 2, 3, 4]


def test_a_store_that_cannot_be_opened_costs_one_notice(tmp_path: Path, service: Service) -> None:
    crew = Crew(tmp_path, url=service.url)
    crew.open_gate()
    (tmp_path / "file").touch()
    nowhere = f"sqlite:///{tmp_path}/file/mlflow.db"  # a file cannot hold another

    code = crew.run(environ={"MLFLOW_TRACKING_URI": nowhere})

    assert code == 0
    assert [line["epoch"] for line in service.of("epoch")] == [1, 2, 3, 4]
    assert crew.log().count("does not take the epochs") == 1


def test_a_script_that_nobody_schedules_has_one_run_over_its_starts(
    uri: str, tmp_path: Path
) -> None:
    client = MlflowClient(uri)
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
