"""A library that logs to MLflow by itself logs to the training's one run."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.job_workers import JobWorkers
from tests.support.mlflow_store import copy_store
from tests.support.training_service import Service

pytestmark = pytest.mark.slow
FILE = Path(__file__).parents[1] / "support/programs/mlflow_loggers.py"


@pytest.mark.parametrize(
    ("library", "parameter"),
    [
        pytest.param("accelerate", "alpha", id="Accelerate"),
        pytest.param("transformers", "learning_rate", id="Transformers"),
        pytest.param("lightning", "alpha", id="Lightning"),
    ],
)
def test_a_librarys_own_logger_writes_to_the_trainings_one_run(
    blank_mlflow: Path, tmp_path: Path, service: Service, library: str, parameter: str
) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    from mlflow import MlflowClient

    uri = copy_store(blank_mlflow, tmp_path)
    client = MlflowClient(uri)
    experiment = client.create_experiment("laxity", artifact_location=str(tmp_path / "artifacts"))
    given = client.create_run(experiment).info.run_id
    service.order(run_id=given)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=2, file=FILE)

    code = job_workers.run(library, environ={"MLFLOW_TRACKING_URI": uri})

    assert code == 0, job_workers.log()
    experiments = [row.experiment_id for row in client.search_experiments()]
    (run,) = client.search_runs(experiments)
    assert run.info.run_id == given
    assert run.data.params[parameter] == "0.5"
    assert "loss" in run.data.metrics
