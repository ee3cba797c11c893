"""A thousand poisoned Jobs beside ten honest ones, on a real API server."""

from collections.abc import Iterator

import pytest

from laxity_k8s.cluster_api import Json
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_k8s.live_cluster import LiveCluster
from laxity_scheduler.live import Report
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.poison import delay_nobody

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
TEMPLATE: Json = {
    "metadata": {"annotations": {"test.laxity/run-for": "0.5s"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "train", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ],
    },
}


@pytest.fixture
def world(cluster: Cluster) -> Iterator[LiveCluster]:
    """With room for all, so that who waits does not wait for GPUs."""
    room = simulated_node("large", 1600)
    for size in room["status"].values():
        size["pods"] = "2000"
    assert cluster.ask("POST", "/api/v1/nodes", room)
    cluster.add_nodes(0)  # returns when all are ready
    made = LiveCluster(KubernetesApi(cluster.kubeconfig), lambda _: Report())
    yield made
    made.close()
    cluster.ask("DELETE", "/api/v1/nodes/large")


def test_a_thousand_poisoned_jobs_delay_no_honest_one_by_more_than_two_cycles(
    world: LiveCluster, namespace: str
) -> None:
    delay_nobody(world, namespace, TEMPLATE, many=1000)
