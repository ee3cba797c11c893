"""Two waiting Jobs in a cluster, and functions that raise for one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.cluster import open_world, stop_workers
from laxity_scheduler.live import Report
from tests.support.breaking import BAD, GOOD, Breaking, breaking, named, put, seen
from tests.support.manifests import job


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
