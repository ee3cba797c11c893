"""A service and a crew of workers for each test that asks."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crew import Crew
from tests.support.training_service import Service


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    yield found
    found.close()


@pytest.fixture
def crew(tmp_path: Path, service: Service) -> Iterator[Crew]:
    found = Crew(tmp_path, url=service.url)
    yield found
    found.close()


@pytest.fixture
def lone_crew(tmp_path: Path) -> Iterator[Crew]:
    """Workers of a job whose service is nowhere."""
    found = Crew(tmp_path)
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
