"""The default scheduler takes the nodes that a plan has named, where there is room."""

from collections.abc import Iterator

import pytest

from laxity import json_tree
from laxity_k8s.objects.node_rows.affinity import affinity_patch
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.history import History
from tests.support.kubernetes.kubectl import apply
from tests.support.kubernetes.service import training_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(200)]
NODES = ("fresh-0", "fresh-1", "fresh-2")


@pytest.fixture
def fresh(cluster: Cluster) -> Iterator[None]:
    for name in NODES:
        assert cluster.ask("POST", "/api/v1/nodes", simulated_node(name, 4))
    cluster.add_nodes(0)  # returns when all are ready
    yield
    for name in NODES:
        cluster.ask("DELETE", f"/api/v1/nodes/{name}")


@pytest.mark.usefixtures("fresh")
def test_workers_go_where_they_were_meant_to(cluster: Cluster, namespace: str) -> None:
    """Left alone the scheduler spreads them: one on each of the three empty nodes."""
    job = training_job(namespace, "roams", {}, labels={}, suspend=False)
    wide = {"parallelism": 3, "completions": 3}
    template = affinity_patch(job, ["fresh-1"] * 3)
    history = History(cluster, namespace)
    try:
        apply(
            cluster,
            {**job, "spec": json_tree.merge_patch(job["spec"], {**wide, "template": template})},
        )
        where: list[str] = []

        def bound() -> bool:
            where[:] = [one["spec"].get("nodeName", "") for one in history.now()[1]]
            return len(where) == 3 and all(where)

        cluster.until(bound, 60.0, "three pods to be bound")
    finally:
        history.close()
    assert where == ["fresh-1"] * 3
