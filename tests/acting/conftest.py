"""A machine for each test, whose workers end with it; the event loop that the client runs on."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from laxity_k8s.local.cluster import open_world, stop_workers
from laxity_k8s.world import LiveCluster
from laxity_scheduler.live import Report
from tests.acting.breaking import BAD, GOOD, Breaking, breaking, named, put, seen
from tests.acting.machine import Machine
from tests.acting.making import job


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.api.close()
    stop_workers(tmp_path)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], uvloop.Loop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def two_jobs(tmp_path: Path) -> Iterator[LiveCluster]:
    """Two waiting Jobs. No worker is started: the local cluster's controller stands still."""
    made = open_world(tmp_path, lambda _: Report(), nodes={"a": 4, "b": 4})
    made.api.controller.pass_over = lambda _: set()  # type: ignore[attr-defined]
    for name in ("bad", "good"):
        put(made, named(job(name)))
    seen(made, BAD, GOOD)
    yield made
    made.close()
    stop_workers(tmp_path)


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    return breaking(monkeypatch)
