"""Who logs the epochs of short trainings to MLflow: the service, from what the workers report."""

from typing import Any

import pytest

from laxity import names
from laxity.worker.code.environment import WorkerEnvironment
from laxity_scheduler.notifications.chart_points import epoch_points

WORKER = {names.ENV_JOB: "default/a", names.ENV_CHECKPOINTS: "/tmp/a", "MLFLOW_TRACKING_URI": "x"}


def line(**changes: Any) -> dict[str, Any]:
    said = {"kind": "epoch", "at": 9.0, "epoch": 3, "epoch_s": 1.5, "width": 2, "bytes": 7}
    return said | {"metrics": {"loss": 0.5}} | changes


def test_a_worker_leaves_mlflow_to_a_service_that_logs_for_it() -> None:
    told = WorkerEnvironment.of({**WORKER, names.ENV_TRACKED_BY: "service"})

    assert told.tracking_uri == ""
    assert WorkerEnvironment.of(WORKER).tracking_uri == "x"


def test_a_training_that_nobody_schedules_logs_itself_all_the_same() -> None:
    alone = WorkerEnvironment.of({"MLFLOW_TRACKING_URI": "x", names.ENV_TRACKED_BY: "service"})

    assert alone.tracking_uri == "x"


def test_reported_epochs_become_the_series_that_a_worker_would_log() -> None:
    (point,) = epoch_points([{"kind": "started"}, line()])

    assert (point.epoch, point.at) == (3, 9.0)
    assert point.values == {
        "loss": 0.5,
        names.WORKERS_SERIES: 2.0,
        names.BYTES_SERIES: 7.0,
        names.EPOCH_ACTUAL: 1.5,
    }


def test_reported_epochs_have_names_that_mlflow_takes_and_no_bytes_that_nobody_read() -> None:
    (point,) = epoch_points([line(metrics={"acc@1": 0.5}, bytes=0)])

    assert set(point.values) == {"acc_1", names.WORKERS_SERIES, names.EPOCH_ACTUAL}


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param("epoch", id="no object"),
        pytest.param({"kind": "epoch"}, id="nothing in it"),
        pytest.param(line(epoch="three"), id="an epoch that is no number"),
        pytest.param(line(metrics={"loss": "low"}), id="a figure that is none"),
        pytest.param(line(metrics=[1]), id="metrics that are a list"),
    ],
)
def test_nonsense_among_the_lines_is_passed_over(nonsense: object) -> None:
    assert [point.epoch for point in epoch_points([nonsense, line()])] == [3]
