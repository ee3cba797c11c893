"""A pool that scales from 0, beside an autoscaler that this test plays: it creates the nodes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from laxity import names
from laxity_k8s.act.node_marks import KEPT_FOR, MARKS
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.fixtures import MANIFESTS
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.place import HARD, Place, annotations, complete, running
from tests.support.kubernetes.service import Json, Service, verdict_of
from tests.support.kubernetes.serving import patch_as_laxity

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

LABEL: Final = "example.com/pool"
WITHIN_S: Final = 15.0
POOL: Final = """
- name: {name}
  labels: {{{label}: {name}}}
  taints: [{{key: {label}, value: {name}, effect: NoSchedule}}]
  allocatable: {{nvidia.com/gpu: 2, cpu: 96, memory: 768Gi, pods: 110}}
  nodes: {nodes}
  within: {within:g}s
"""


@pytest.fixture
def there(
    account: None, cluster: Cluster, service_forker: ServiceForker, namespace: str, tmp_path: Path
) -> Iterator[Place]:
    pools = [
        POOL.format(name=name, label=LABEL, within=WITHIN_S, nodes=nodes)
        for name, nodes in (("comes", 1), ("never", 1), ("kept", 2))
    ]
    service = Service(cluster, tmp_path, service_forker=service_forker, LAXITY_POOLS="".join(pools))
    with service.running():
        yield Place(cluster, service, namespace)
    for name in ("comes-1", "kept-1", "kept-2"):
        cluster.ask("DELETE", f"/api/v1/nodes/{name}")


def job_for(there: Place, name: str, pool: str, asked: dict[str, str], run_s: float = 5.0) -> Json:
    made = there.job(name, asked, run_s=run_s)
    made["spec"]["template"]["spec"] |= {
        "nodeSelector": {LABEL: pool},
        "tolerations": [{"key": LABEL, "operator": "Exists"}],
    }
    return made


def add_node(cluster: Cluster, pool: str, number: int = 1) -> None:
    """As an autoscaler does, once pods are pending."""
    name = f"{pool}-{number}"
    node = simulated_node(name, 2)
    node["metadata"]["labels"] |= {LABEL: pool}
    taints = [{"key": LABEL, "value": pool, "effect": "NoSchedule"}]
    node["spec"] = {"taints": taints, "unschedulable": True}  # until it is ready
    assert cluster.ask("POST", "/api/v1/nodes", node)
    kubectl(cluster, "wait", "--for=condition=Ready", f"node/{name}", "--timeout=60s")
    kubectl(cluster, "uncordon", name)


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


@pytest.fixture(scope="module")
def rights(cluster: Cluster, account: None) -> Iterator[None]:
    """Both components that may patch nodes: neither keeps the other from it."""
    folders = {"autoscaler": ("rights", "marks-only"), "loans": ("rights", "label-only")}
    files = [
        word
        for folder, names_of in folders.items()
        for name in names_of
        for word in ("-f", str(MANIFESTS / folder / f"{name}.yaml"))
    ]
    kubectl(cluster, "apply", *files)
    yield
    kubectl(cluster, "delete", *files)


def marks(cluster: Cluster, node: str) -> dict[str, str]:
    there = cluster.ask("GET", f"/api/v1/nodes/{node}")
    assert there is not None
    noted = there["metadata"].get("annotations", {})
    return {key: noted[key] for key in (*MARKS, KEPT_FOR) if key in noted}


def test_idle_node_that_a_promise_waits_for_is_marked_until_it_starts(
    rights: None, there: Place
) -> None:
    for number in (1, 2):
        add_node(there.cluster, "kept", number)
    first = job_for(there, "first", "kept", {**HARD, "preemptible": "false"}, run_s=30.0)
    both = job_for(there, "both", "kept", {**HARD, "widths": "2"})
    both["spec"] |= {"parallelism": 2, "completions": 2}
    for job in (first, both):
        limits = job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        limits["nvidia.com/gpu"] = "2"
    there.apply(first)
    there.until_job("first", running, "runs")
    (busy,) = there.pods("first").values()
    idle = {"kept-1": "kept-2", "kept-2": "kept-1"}[busy]

    there.apply(both)
    there.until(lambda: bool(marks(there.cluster, idle)), f"{idle} to be marked")
    wanted = {**dict.fromkeys(MARKS, "true"), KEPT_FOR: f"{there.namespace}/both"}
    assert marks(there.cluster, idle) == wanted
    assert marks(there.cluster, busy) == {}

    there.until_job("both", running, "runs")
    there.until(lambda: not marks(there.cluster, idle), "the marks to go")


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/other": "true"}}},
        {"metadata": {"labels": {"type": "other"}}},
        {"spec": {"unschedulable": True}},
    ],
    ids=["another annotation", "a label", "the spec"],
)
def test_the_right_to_mark_nodes_changes_nothing_else_of_them(
    rights: None, cluster: Cluster, body: Json
) -> None:
    cluster.ask("POST", "/api/v1/nodes", simulated_node("kept-9", 2))
    mark = {"metadata": {"annotations": dict.fromkeys(MARKS, "true")}}
    try:
        cluster.until(lambda: patch_as_laxity(cluster, "kept-9", mark)[0] == 200, 30.0, "the right")
        status, words = patch_as_laxity(cluster, "kept-9", body)
    finally:
        cluster.ask("DELETE", "/api/v1/nodes/kept-9")
    assert (status, "laxity may" in words) == (422, True)
