"""The example project, as its owner runs it: real services, and a worker and the service killed."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from tests.support.local_service import LocalService, local_service
from tests.support.waiting import until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

PROJECT = Path(__file__).parents[2] / "flows" / "examples" / "project"


@pytest.fixture
def served(tmp_path: Path, prefect_api: str) -> Iterator[LocalService]:
    home = tmp_path / "home"
    given = {"tracking_uri": f"sqlite:///{home}/mlflow.db", "LAXITY_SAVING_SHARE": "1"}
    with local_service(home, prefect_api=prefect_api, **given) as service:
        yield service


def test_a_project_that_is_killed_trains_its_models_in_one_run_each(
    served: LocalService, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    run_module(served, project, "vision.data").wait(timeout=60)

    nightly = run_module(served, project, "vision.nightly")
    job = killed_twice(served)
    assert nightly.wait(timeout=240) == 0, served.processes.tail("vision.nightly", 40)

    views = sorted(served.client.jobs(), key=lambda view: view.submitted_at or 0.0)
    first, third = [view for view in views if view.state == "finished"]
    assert "refused" in {view.state for view in views}
    assert (first.id, first.kept, third.kept) == (job, True, True)
    again = {epoch: number for epoch, number in epochs_trained(served, job).items() if number > 1}
    assert sum(again.values()) - len(again) <= 1, f"trained again: {again}"
    runs = {run.data.tags[names.TAG_JOB]: run for run in runs_of(served)}
    assert set(runs) == {first.id, third.id}
    data = runs[first.id].data
    assert data.params["hidden_layer_sizes"] == "32", "autologged"
    assert data.tags["stage"] == "dev"
    assert (data.tags[names.TAG_VERDICT], data.tags[names.TAG_OUTCOME]) == ("promised", "kept")
    assert {names.EPOCH_ACTUAL, names.EPOCH_P50, names.FINISH_P90, "accuracy"} <= set(data.metrics)
    states, labels = flow_runs(data.tags[names.TAG_FLOW_RUN])
    assert {"Completed", "Refused"} == set(states)
    assert labels["laxity.mlflow_run"] == runs[first.id].info.run_id


def run_module(served: LocalService, project: Path, module: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", module]
    with served.processes.log(module).open("wb") as log:
        return subprocess.Popen(
            command, cwd=project, env=served.environment, stdout=log, stderr=log
        )


def killed_twice(served: LocalService) -> str:
    """Kill the worker of the first training in an epoch, and the service in a later one; its job."""
    until(lambda: bool(served.client.jobs()), limit_s=240, what="the first training")
    job = served.client.jobs()[0].id
    until(lambda: served.client.job(job).epochs_done >= 3, limit_s=240, what="three epochs")
    (worker,) = served.workers()
    os.kill(worker, signal.SIGKILL)
    until(lambda: served.client.job(job).epochs_done >= 6, limit_s=240, what="six epochs")
    served.kill()
    served.start()
    return job


def epochs_trained(served: LocalService, job: str) -> Counter[str]:
    """How often the training code said that it had done an epoch."""
    return Counter(re.findall(r"epoch (\d+) done", served.client.logs(job)))


def runs_of(served: LocalService) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(served.environment["MLFLOW_TRACKING_URI"])
    experiments = [row.experiment_id for row in client.search_experiments()]
    return [*client.search_runs(experiments)]


def flow_runs(page: str) -> tuple[list[str], dict[str, Any]]:
    """The states of all trainings of the parent flow, and the labels of the run at this page."""
    from prefect import get_client

    run_id = page.rpartition("/")[2]
    with get_client(sync_client=True) as api:
        runs = [run for run in api.read_flow_runs() if "laxity" in run.tags]
    (labels,) = [run.labels for run in runs if str(run.id) == run_id]
    return [str(run.state_name) for run in runs], dict(labels)
