"""A service and the workers of a job for each test that asks."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.job_workers import JobWorkers
from tests.support.training_service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    yield found
    found.close()


@pytest.fixture
def job_workers(tmp_path: Path, service: Service) -> Iterator[JobWorkers]:
    found = JobWorkers(tmp_path, url=service.url)
    yield found
    found.close()


@pytest.fixture
def lone_workers(tmp_path: Path) -> Iterator[JobWorkers]:
    """Workers of a job whose service is nowhere."""
    found = JobWorkers(tmp_path)
    yield found
    found.close()


@pytest.fixture(params=["nobody listens", "nobody answers"])
def dead_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an MLflow server that refuses connections, or accepts and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if request.param == "nobody answers":
            listening.listen(64)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
