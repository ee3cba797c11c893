"""Epochs that MLflow has not taken at a training's end go to the service, which logs them."""

from pathlib import Path

import pytest

from laxity import names
from laxity.worker.sigterm import EXIT_STOPPED
from tests.support.job_workers import PATIENCE_S, JobWorkers
from tests.support.training_service import Service

pytestmark = pytest.mark.slow


def test_a_short_training_hands_its_epochs_over_instead_of_importing_mlflow(
    tmp_path: Path, service: Service
) -> None:
    service.order(logs_points=True)
    job_workers = JobWorkers(tmp_path, url=service.url)
    job_workers.open_gate()

    code = job_workers.run(
        "odd_figures", environ={"MLFLOW_TRACKING_URI": "sqlite:////nowhere/mlflow.db"}
    )

    points = service.of("finished")[0]["points"]
    assert code == 0
    assert [point["epoch"] for point in points] == [1, 2, 3, 4]
    assert [point["values"].get("loss") for point in points] == [1.0, None, 1 / 3, 1 / 4]
    assert [point["values"][names.EPOCH_ACTUAL] for point in points] == [
        line["epoch_s"] for line in service.of("epoch")
    ]
    assert "MLflow" not in job_workers.log()


def test_a_training_that_fails_early_hands_over_the_epochs_before(
    tmp_path: Path, service: Service
) -> None:
    service.order(logs_points=True)
    job_workers = JobWorkers(tmp_path, url=service.url)

    code = job_workers.run(
        "raises", environ={"MLFLOW_TRACKING_URI": "sqlite:////nowhere/mlflow.db"}
    )

    assert code == 70
    assert [point["epoch"] for point in service.of("failed")[0]["points"]] == [1]
    assert "MLflow" not in job_workers.log()


def test_epochs_that_neither_mlflow_nor_the_service_took_go_to_the_service_that_is_back(
    dead_server: str, tmp_path: Path, service: Service
) -> None:
    service.order(logs_points=True)
    job_workers = JobWorkers(tmp_path, url=service.url)
    job_workers.open_gate(2)
    worker = job_workers.start(environ={"MLFLOW_TRACKING_URI": dead_server})
    job_workers.until_noted("began", epoch=3)
    port = service.port
    service.close()
    job_workers.until(
        lambda: "the service does not answer" in job_workers.log(), "the service is missed"
    )
    job_workers.open_gate()
    job_workers.until(
        lambda: len(job_workers.reports("finished")) == 2, "the points are on the disk"
    )
    back = Service(port=port)
    try:
        code = worker.wait(PATIENCE_S)
        points = [point for line in back.of("finished") for point in line.get("points", ())]
    finally:
        back.close()

    assert code == 0
    assert [point["epoch"] for point in points] == [1, 2, 3, 4]
    assert "neither MLflow" not in job_workers.log()


def test_a_worker_that_is_stopped_hands_over_its_epochs_for_a_job_that_was_cancelled(
    tmp_path: Path, service: Service
) -> None:
    service.order(logs_points=True)
    job_workers = JobWorkers(tmp_path, url=service.url)
    job_workers.open_gate(2)
    worker = job_workers.start(environ={"MLFLOW_TRACKING_URI": "sqlite:////nowhere/mlflow.db"})
    job_workers.until_noted("began", epoch=3)

    worker.terminate()

    assert worker.wait(30) == EXIT_STOPPED
    assert [point["epoch"] for point in service.of("stopped")[0]["points"]] == [1, 2]
