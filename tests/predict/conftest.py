"""One blank MLflow store for all tests of predictions, and stores that were refitted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.refitting import Place


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store with its tables and nothing in them: to make them takes ten seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("blank") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="module")
def place(blank: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("refit"), blank)
    place.refit()
    yield place
    place.history.engine.dispose()
