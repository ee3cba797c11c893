"""Two waiting Jobs in a cluster, and functions that raise for one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_k8s.live_cluster import LiveCluster
from laxity_scheduler.job_faults import JobFaults
from tests.support.breaking import BAD, GOOD, Breaking, breaking, named, put, seen
from tests.support.manifests import job
from tests.support.still_cluster import opened


@pytest.fixture
def counted() -> list[str]:
    """Stages of errors about one job, as `laxity_job_errors_total` counts them."""
    return []


@pytest.fixture
def two_jobs(tmp_path: Path, counted: list[str]) -> Iterator[LiveCluster]:
    """Two waiting Jobs. No worker is started: the local cluster's controller stands still."""
    faults = JobFaults(counted.append)
    with opened(tmp_path, nodes={"a": 4, "b": 4}, faults=faults) as made:
        for name in ("bad", "good"):
            put(made, named(job(name)))
        seen(made, BAD, GOOD)
        yield made


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    return breaking(monkeypatch)
