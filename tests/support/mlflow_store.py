"""MLflow stores with their tables and nothing in them: making the tables takes seconds, a copy none."""

import shutil
from pathlib import Path

import pytest


def copy_store(blank: Path, folder: Path) -> str:
    """The URI of a blank store in this folder."""
    shutil.copy(blank, folder / "mlflow.db")
    return f"sqlite:///{folder}/mlflow.db"


@pytest.fixture(scope="session")
def blank_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("blank") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def mlflow_uri(blank_mlflow: Path, tmp_path: Path) -> str:
    """The URI of a store of the test's own, `mlflow.db` in its folder."""
    return copy_store(blank_mlflow, tmp_path)
