"""Nodes labelled inference are lent to trainings on a real API server, and given back."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import MANIFESTS
from tests.support.kubernetes.ground import Ground, ground
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.mortal import Nursery
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import training_job
from tests.support.kubernetes.serving import (
    FLEET,
    TOLERATES,
    Deployment,
    label_fleet,
    lent,
    node_specs,
    pools,
    unlabel_fleet,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

ELASTIC = {"epochs": "1000", "epoch-estimate": "10s", "widths": "4,8,12"}
OVERLAY = ("rights", "label-only", "priority")


@pytest.fixture(scope="module")
def overlay(cluster: Cluster, account: None) -> Iterator[None]:
    files = [word for name in OVERLAY for word in ("-f", str(MANIFESTS / "loans" / f"{name}.yaml"))]
    kubectl(cluster, "apply", *files)
    yield
    kubectl(cluster, "delete", *files)


@pytest.fixture
def fleet(cluster: Cluster, overlay: None) -> Iterator[dict[str, Any]]:
    """Two nodes, as they are before laxity sees them."""
    yield label_fleet(cluster)
    unlabel_fleet(cluster)


@pytest.fixture
def replica(fleet: None, cluster: Cluster, nursery: Nursery, tmp_path: Path) -> Iterator[Replica]:
    with Replica(cluster, nursery, tmp_path / "service") as made:
        yield made


@pytest.fixture
def there(replica: Replica, cluster: Cluster, namespace: str) -> Iterator[Ground]:
    with ground(cluster, namespace, replica) as made:
        yield made


def train(
    there: Ground, name: str, asked: dict[str, str], *, tolerates: bool = True, **more: Any
) -> None:
    job = training_job(there.namespace, name, asked, **more)
    if tolerates:
        job["spec"]["template"]["spec"]["tolerations"] = TOLERATES
    apply(there.cluster, job)


def nodes_of(there: Ground, name: str) -> list[str]:
    path = f"/api/v1/namespaces/{there.namespace}/pods?labelSelector=job-name={name}"
    pods: Sequence[Any] = (there.cluster.ask("GET", path) or {}).get("items", [])
    return sorted(pod["spec"].get("nodeName", "") for pod in pods)


def test_idle_nodes_are_lent_to_trainings_that_tolerate_the_fleet_and_given_back_when_it_grows(
    there: Ground, cluster: Cluster, fleet: dict[str, Any]
) -> None:
    serving = Deployment(cluster, there.namespace)
    there.until(lambda: len(lent(cluster)) == 1, "a node to be lent; room for a pod stays free")
    train(there, "elastic", ELASTIC)
    there.until(
        lambda: any(node in FLEET for node in nodes_of(there, "elastic")),
        "it to grow onto lent GPUs",
    )
    serving.scale(8)
    there.until(serving.serves, "all inference pods to have a node")
    assert max(serving.waited_s.values(), default=0.0) < 45.0
    there.until(lambda: set(pools(cluster).values()) == {"inference"}, "nodes to be given back")
    there.until(
        lambda: (
            there.running(["elastic"]) == 1
            and not any(node in FLEET for node in nodes_of(there, "elastic"))
        ),
        "the training to go on elsewhere",
    )
    assert node_specs(cluster) == fleet
