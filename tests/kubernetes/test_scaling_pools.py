"""A pool that scales from 0, beside an autoscaler that this test plays: it creates the nodes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from laxity import names
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.mortal import Nursery
from tests.support.kubernetes.place import HARD, Place, annotations, complete
from tests.support.kubernetes.service import Json, Service, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

LABEL: Final = "example.com/pool"
WITHIN_S: Final = 15.0
POOL: Final = """
- name: {name}
  labels: {{{label}: {name}}}
  taints: [{{key: {label}, value: {name}, effect: NoSchedule}}]
  allocatable: {{nvidia.com/gpu: 2, cpu: 96, memory: 768Gi, pods: 110}}
  nodes: 1
  within: {within:g}s
"""


@pytest.fixture
def there(
    account: None, cluster: Cluster, nursery: Nursery, namespace: str, tmp_path: Path
) -> Iterator[Place]:
    pools = [POOL.format(name=name, label=LABEL, within=WITHIN_S) for name in ("comes", "never")]
    service = Service(cluster, tmp_path, nursery=nursery, pools="".join(pools))
    with service.running():
        yield Place(cluster, service, namespace)
    cluster.ask("DELETE", "/api/v1/nodes/comes-1")


def job_for(there: Place, name: str, pool: str, asked: dict[str, str], run_s: float = 5.0) -> Json:
    made = there.job(name, asked, run_s=run_s)
    made["spec"]["template"]["spec"] |= {
        "nodeSelector": {LABEL: pool},
        "tolerations": [{"key": LABEL, "operator": "Exists"}],
    }
    return made


def add_node(cluster: Cluster, pool: str) -> None:
    """As an autoscaler does, once pods are pending."""
    node = simulated_node(f"{pool}-1", 2)
    node["metadata"]["labels"] |= {LABEL: pool}
    taints = [{"key": LABEL, "value": pool, "effect": "NoSchedule"}]
    node["spec"] = {"taints": taints, "unschedulable": True}  # until it is ready
    assert cluster.ask("POST", "/api/v1/nodes", node)
    kubectl(cluster, "wait", "--for=condition=Ready", f"node/{pool}-1", "--timeout=60s")
    kubectl(cluster, "uncordon", f"{pool}-1")


def told(there: Place, name: str) -> dict[str, str]:
    return {event["reason"]: event["message"] for event in there.events(name)}


def test_pool_of_no_nodes_is_promised_and_the_promise_kept(there: Place) -> None:
    there.apply(job_for(there, "a", "comes", HARD))
    there.until(lambda: list(there.pods("a").values()) == [""], "its pod to be pending")
    assert verdict_of(there.get("a"))["kind"] == "promise"
    words = "if nodes of pool comes come within 15s; they usually come in 15s"
    there.until(lambda: words in told(there, "a").get("FitsWhenNodesCome", ""), "that is told")

    add_node(there.cluster, "comes")
    there.until_job("a", complete, "finishes")

    there.cluster.ask("DELETE", "/api/v1/nodes/comes-1")
    there.apply(job_for(there, "again", "comes", HARD))
    there.until(lambda: "FitsWhenNodesCome" in told(there, "again"), "the next promise")
    assert "usually come in 15s" not in told(there, "again")["FitsWhenNodesCome"], "it has learned"


def test_pool_that_never_comes_is_told_at_once_by_name(there: Place) -> None:
    there.apply(job_for(there, "b", "never", HARD))
    there.until(lambda: "PodsDoNotFit" in told(there, "b"), "that its pods have no node")
    assert "no node of pool never came within 15s" in told(there, "b")["PodsDoNotFit"]
    there.until(lambda: "PromiseInDanger" in told(there, "b"), "the danger")
    words = "pool never: no node came within 15s; it is counted on again at "
    there.until(lambda: words in annotations(there.get("b"))[names.REASON], "what it waits for")
