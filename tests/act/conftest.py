"""A machine for each test, whose workers end with it; the event loop that the client runs on."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from laxity_k8s.local.local_cluster import stop_workers
from tests.support.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.api.close()
    stop_workers(tmp_path)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], uvloop.Loop]]:
    return {"uvloop": uvloop.new_event_loop}
