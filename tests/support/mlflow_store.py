"""MLflow stores with their tables and nothing in them: making the tables takes seconds, a copy none."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from tests.support.processes import free_ports

STARTS_IN_S: Final = 240.0


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


@contextmanager
def mlflow_server(folder: Path, *, port: int = 0) -> Iterator[str]:
    """A real MLflow on the folder's store, at a free port unless one is given."""
    url = f"http://127.0.0.1:{port or free_ports(1)[0]}"
    command = [
        str(Path(sys.executable).with_name("mlflow")), "server",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--default-artifact-root", str(folder / "mlartifacts"),
        "--workers", "1", "--port", url.rpartition(":")[2],
    ]  # fmt: skip
    log = (folder / "server.log").open("w")
    with (
        log,
        subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, cwd=folder
        ) as process,
    ):
        try:
            end = time.monotonic() + STARTS_IN_S
            while not answers(url):
                assert process.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < end, (folder / "server.log").read_text()
                time.sleep(0.5)
            yield url
        finally:
            os.killpg(process.pid, 15)
            process.wait(timeout=60)


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=5):  # noqa: S310 - our own server
            return True
    except OSError:
        return False
