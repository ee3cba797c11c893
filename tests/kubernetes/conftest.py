"""The cluster that real pods train on, started once, by the first test that needs it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders import TOKEN
from tests.support.kubernetes.fixtures import WHY_NOT
from tests.support.kubernetes.place import service, there
from tests.support.kubernetes.pod_cluster import PodCluster
from tests.support.kubernetes.realnode import why_not

__all__ = ["service", "there"]  # fixtures of tests in this folder


@pytest.fixture(scope="session")
def real_pod_cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[PodCluster]:
    """A cluster whose node is this machine. Skips and says why where that cannot be."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    if not (assets / "kube-apiserver").exists():
        pytest.skip(WHY_NOT)
    if reason := why_not(assets):
        pytest.skip(reason)
    blank: Path = request.getfixturevalue("blank_mlflow")  # only where there is a cluster
    made = PodCluster(assets, tmp_path_factory.mktemp("pod_cluster"), blank)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def pod_cluster(
    real_pod_cluster: PodCluster, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> PodCluster:
    """That cluster, as flows called in this process find it."""
    monkeypatch.setenv("LAXITY_URL", real_pod_cluster.url)
    monkeypatch.setenv("LAXITY_TOKEN", TOKEN)
    for name in ("LAXITY_JOB", "LAXITY_ALONE", "LAXITY_IDEMPOTENCY_KEY"):
        monkeypatch.delenv(name, raising=False)
    return real_pod_cluster


@pytest.fixture
def place(real_pod_cluster: PodCluster) -> Iterator[str]:
    """A fresh namespace; deleted afterwards, and waited for: the GPUs must be free again."""
    yield from real_pod_cluster.namespace()
