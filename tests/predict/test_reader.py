"""Epochs that somebody else logged to MLflow are known to a service that leads."""

import logging
from pathlib import Path

import pytest

from laxity import names
from laxity_profiler.estimate import Workload
from laxity_profiler.history.history import History
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.notifications.poller import Poller
from laxity_scheduler.process.start import mlflow_poller
from laxity_scheduler.service.settings import Settings


def test_an_mlflow_that_is_away_is_told_once_and_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = [OSError("nobody there"), OSError("nobody there")]

    def read() -> int:
        if away:
            raise away.pop()
        return 3

    reader = Poller(read, due=lambda: True)
    with caplog.at_level(logging.WARNING):
        assert [reader.poll_once() for _ in range(3)] == [False, False, True]
    assert caplog.text.count("nobody there") == 1


def test_a_replica_that_does_not_lead_reads_nothing() -> None:
    def read() -> int:
        raise AssertionError("it was read")

    assert Poller(read, due=lambda: False).poll_once()


def test_without_an_mlflow_there_is_nothing_to_read(tmp_path: Path, history: History) -> None:
    settings = Settings(home=tmp_path, tracking_uri="none")
    assert mlflow_poller(settings, history, due=lambda: True) is None


@pytest.mark.slow
def test_a_run_from_elsewhere_is_known_to_the_predictor(
    tmp_path: Path, history: History, mlflow_uri: str
) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    settings = Settings(home=tmp_path)
    assert settings.tracking_url == mlflow_uri
    client = MlflowClient(tracking_uri=mlflow_uri)
    experiment = client.create_experiment("notebook", artifact_location=str(tmp_path))
    run_id = client.create_run(experiment, tags={names.TAG_MODEL: "elsewhere"}).info.run_id
    epochs = [Metric(names.EPOCH_ACTUAL, 40.0, 1_000 * (40 * n), n) for n in range(1, 7)]
    client.log_batch(run_id, metrics=epochs)
    reader = mlflow_poller(settings, history, due=lambda: True)

    assert reader is not None
    assert reader.poll_once()
    predictor = Learner(history).predictor()
    estimate = predictor.epoch_time(Workload("elsewhere", 6), 1)
    assert estimate.p50_s == pytest.approx(40.0, rel=0.05)
