"""One real control plane for the whole test session, and a namespace for each test."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes.cluster import MUTATES, Cluster
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import kubectl

MANIFESTS = Path(__file__).parents[3] / "k8s" / "manifests"

WHY_NOT = (
    "no cluster: set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver "
    "(and kube-controller-manager, kube-scheduler, kwok)"
)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane with four simulated nodes of 4 GPUs, and laxity's admission policies."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not (Path(assets) / "kube-apiserver").exists():
        pytest.skip(WHY_NOT)
    started = Cluster(Path(assets), tmp_path_factory.mktemp("cluster"))
    try:
        started.up(api_flags=MUTATES)
        started.add_nodes(4, gpus=4)
        yield started
    finally:
        started.down()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh namespace; deleted afterwards with all that is in it, and its GPUs are free again."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert cluster.ask("POST", "/api/v1/namespaces", made)
    yield name
    remove_namespace(cluster, name)


def remove_namespace(cluster: Cluster, name: str) -> None:
    """With all that is in it: for the next test its Jobs are gone, and its GPUs are free."""
    cluster.ask(
        "DELETE", f"/apis/batch/v1/namespaces/{name}/jobs", {"propagationPolicy": "Background"}
    )
    cluster.ask("DELETE", f"/api/v1/namespaces/{name}")
    pods = f"/api/v1/namespaces/{name}/pods"

    def are_gone() -> bool:
        """Who has minutes to stop is not waited for."""
        cluster.ask("DELETE", pods, {"gracePeriodSeconds": 0})
        return not (cluster.ask("GET", pods) or {}).get("items")

    cluster.until(are_gone, 60.0, "its pods to go")


@pytest.fixture(scope="session")
def account(cluster: Cluster) -> None:
    """Laxity's own account, with the rights of the manifests in every namespace."""
    for name in ("base/namespace", "base/rbac", "base/account", "cluster-wide/binding"):
        kubectl(cluster, "apply", "-f", str(MANIFESTS / f"{name}.yaml"))


@pytest.fixture(scope="session")
def service_forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceForker]:
    """Where services are born that a test kills or pauses."""
    made = ServiceForker(tmp_path_factory.mktemp("service_forker") / "log")
    yield made
    made.close()
