"""Nodes labelled inference are lent to trainings on a real API server, and given back."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from tests.support.kubernetes.audit import WRITES, Audit, Right, granted
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import MANIFESTS
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.namespace_jobs import HARD, NamespaceJobs, open_namespace_jobs
from tests.support.kubernetes.place import judged
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import training_job
from tests.support.kubernetes.serving import (
    FLEET,
    TOLERATES,
    Deployment,
    label_fleet,
    lent,
    node_specs,
    patch_as_laxity,
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
def replica(
    fleet: None, cluster: Cluster, service_forker: ServiceForker, tmp_path: Path
) -> Iterator[Replica]:
    with Replica(cluster, service_forker, tmp_path / "service") as made:
        yield made


@pytest.fixture
def there(replica: Replica, cluster: Cluster, namespace: str) -> Iterator[NamespaceJobs]:
    with open_namespace_jobs(cluster, namespace, replica) as made:
        yield made


def train(
    there: NamespaceJobs, name: str, asked: dict[str, str], *, tolerates: bool = True, **more: Any
) -> None:
    job = training_job(there.namespace, name, asked, **more)
    if tolerates:
        job["spec"]["template"]["spec"]["tolerations"] = TOLERATES
    apply(there.cluster, job)


def post(there: NamespaceJobs, path: str, body: dict[str, Any]) -> None:
    there.replicas[0].ask("POST", path, body).raise_for_status()


def rights_of_loans(audit: Audit) -> set[Right]:
    """What was done to nodes, or in the namespace of their Events."""
    refs = [(entry["objectRef"], entry["verb"]) for entry in audit.asked() if "objectRef" in entry]
    return {
        (ref.get("apiGroup", ""), ref["resource"], verb)
        for ref, verb in refs
        if verb in WRITES and (ref["resource"] == "nodes" or ref.get("namespace") == "default")
    }


def until_ended(there: NamespaceJobs, jobs: list[str]) -> None:
    def count() -> int:
        return sum("completionTime" in job["status"] for job in there.jobs(jobs))

    there.until(lambda: count() == len(jobs), f"{len(jobs)} jobs to end")


def nodes_of(there: NamespaceJobs, name: str) -> list[str]:
    """Of those of its pods that have one."""
    path = f"/api/v1/namespaces/{there.namespace}/pods?labelSelector=job-name={name}"
    pods: Sequence[Any] = (there.cluster.ask("GET", path) or {}).get("items", [])
    return sorted(node for pod in pods if (node := pod["spec"].get("nodeName")))


def metric(there: NamespaceJobs, name: str) -> float:
    """A series of the service that has no labels."""
    lines = there.replicas[0].ask("GET", "/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def test_idle_nodes_are_lent_to_trainings_that_tolerate_the_fleet_and_given_back_when_it_grows(
    there: NamespaceJobs, cluster: Cluster, fleet: dict[str, Any]
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
    there.until(
        lambda: metric(there, "laxity_inference_wait_seconds_count") == 8.0,
        "each pod's wait to be counted once",
    )
    waited_s = metric(there, "laxity_inference_wait_seconds_sum")
    assert waited_s == pytest.approx(sum(serving.waited_s.values()), abs=8 * 2.0)
    assert metric(there, "laxity_inference_pods_waiting") == 0.0
    there.until(lambda: set(pools(cluster).values()) == {"inference"}, "nodes to be given back")
    there.until(
        lambda: (
            there.running(["elastic"]) == 1
            and not any(node in FLEET for node in nodes_of(there, "elastic"))
        ),
        "the training to go on elsewhere",
    )
    assert node_specs(cluster) == fleet


def test_a_service_that_is_killed_while_nodes_are_lent_knows_them_and_inference_does_not_wait_for_it(
    there: NamespaceJobs, cluster: Cluster, fleet: dict[str, Any], replica: Replica
) -> None:
    audit = Audit(cluster)
    serving = Deployment(cluster, there.namespace)
    train(there, "elastic", ELASTIC)
    there.until(lambda: len(nodes_of(there, "elastic")) == 12, "it to grow onto lent GPUs")
    replica.end()
    serving.scale(8)
    there.until(serving.serves, "all inference pods to have a node though laxity is dead")
    assert max(serving.waited_s.values(), default=0.0) < 45.0
    assert len(lent(cluster)) == 1
    replica.start()
    there.until(lambda: set(pools(cluster).values()) == {"inference"}, "the node to be given back")
    there.until(lambda: there.running(["elastic"]) == 1, "the training to go on")
    assert not set(FLEET) & set(nodes_of(there, "elastic"))
    rights = granted(MANIFESTS / "loans" / "rights.yaml")
    there.until(lambda: rights_of_loans(audit) == rights, "all rights to be used, and no other")
    assert audit.refused() == set()


def test_promises_are_kept_while_the_fleet_grows_and_shrinks_and_laxity_is_killed(
    there: NamespaceJobs, cluster: Cluster, replica: Replica
) -> None:
    serving = Deployment(cluster, there.namespace)
    train(there, "elastic", ELASTIC)
    there.until(lambda: len(nodes_of(there, "elastic")) == 12, "it to grow onto lent GPUs")
    hard: list[str] = []
    for wave, pods in enumerate((3, 8, 2, 6)):
        hard += [f"hard-{wave}-{number}" for number in range(4)]
        for name in hard[-4:]:
            train(there, name, HARD, run_s=4.0)
        serving.scale(pods)
        if wave == 1:
            replica.end()
            there.until(serving.serves, "inference to have its GPUs while laxity is dead")
            replica.start()
        there.until(serving.serves, "inference to have its GPUs")
        until_ended(there, hard)
    assert max(serving.waited_s.values(), default=0.0) < 45.0
    for job in there.jobs(hard):
        ended = datetime.fromisoformat(job["status"]["completionTime"])
        promised = job["metadata"]["annotations"][names.PROMISED_DEADLINE]
        assert ended <= datetime.fromisoformat(promised), job["metadata"]["name"]
        assert job["metadata"]["labels"][names.VERDICT_LABEL] == "promised"


def test_a_release_gives_lent_nodes_back_and_lends_none_again(
    there: NamespaceJobs, cluster: Cluster, fleet: dict[str, Any]
) -> None:
    train(there, "elastic", ELASTIC)
    there.until(lambda: len(nodes_of(there, "elastic")) == 12, "it to grow onto lent GPUs")
    before = nodes_of(there, "elastic")
    post(there, "/v1/release", {})
    assert node_specs(cluster) == fleet
    assert nodes_of(there, "elastic") == before, "what runs goes on"
    train(there, "later", ELASTIC)
    there.until(
        lambda: any(map(judged, there.jobs(["later"]))),
        "a later cycle",
    )
    assert node_specs(cluster) == fleet


def test_an_order_holds_and_needs_are_known_after_laxity_was_killed(
    there: NamespaceJobs, cluster: Cluster, replica: Replica
) -> None:
    there.until(lambda: len(lent(cluster)) == 1, "a node to be lent")
    serving = Deployment(cluster, there.namespace)
    serving.scale(3)
    there.until(serving.serves, "inference pods to have a node")
    post(there, "/v1/loans", {"reclaim": 4})
    there.until(lambda: lent(cluster) == [], "it to be given back")
    serving.scale(0)
    there.until(serving.serves, "its pods to be gone: without the order a node would be lent")
    replica.end()
    replica.start()
    train(there, "elastic", ELASTIC)
    there.until(lambda: len(nodes_of(there, "elastic")) == 8, "it to grow onto all other nodes")
    assert lent(cluster) == [], "the order holds"
    file = Path(replica.env["LAXITY_HOME"]) / "laxity.db"
    with closing(sqlite3.connect(file)) as store:
        (needed,) = store.execute("SELECT max(needed_gpus) FROM inference_slots").fetchone()
    assert needed == 3.0
    post(there, "/v1/loans", {"loan": 4})
    there.until(lambda: len(lent(cluster)) == 1, "it to be lent again")


def test_a_training_leaves_a_node_that_somebody_else_takes_back_while_it_is_lent(
    there: NamespaceJobs, cluster: Cluster
) -> None:
    train(there, "elastic", ELASTIC)
    there.until(lambda: len(nodes_of(there, "elastic")) == 12, "it to grow onto lent GPUs")
    (node,) = lent(cluster)
    kubectl(cluster, "label", "--overwrite", "node", node, "laxity.dev/pool-", "team=ours")
    kubectl(cluster, "label", "node", node, "laxity.dev/pool=inference")
    kubectl(cluster, "cordon", node)
    there.until(lambda: node not in nodes_of(there, "elastic"), "it to leave")
    there.until(lambda: there.running(["elastic"]) == 1, "it to go on elsewhere")
    kubectl(cluster, "uncordon", node)
    kubectl(cluster, "label", "node", node, "team-")


def test_a_training_whose_lent_node_is_deleted_goes_on_elsewhere(
    there: NamespaceJobs, cluster: Cluster
) -> None:
    train(there, "elastic", ELASTIC)
    there.until(lambda: len(nodes_of(there, "elastic")) == 12, "it to grow onto lent GPUs")
    (node,) = lent(cluster)
    kubectl(cluster, "delete", "node", node)
    try:
        there.until(lambda: node not in nodes_of(there, "elastic"), "its pods there to be gone")
        there.until(lambda: there.running(["elastic"]) == 1, "it to go on elsewhere")
        assert nodes_of(there, "elastic")
    finally:
        cluster.add_nodes(4, gpus=4)
        label_fleet(cluster, (node,))


@pytest.mark.parametrize(
    ("node", "body"),
    [
        pytest.param("gpu-0", {"metadata": {"labels": {"laxity.dev/pool": "loaned"}}}, id="not of the fleet"),
        pytest.param(FLEET[0], {"metadata": {"labels": {"laxity.dev/pool": "training"}}}, id="another pool"),
        pytest.param(FLEET[0], {"metadata": {"labels": {"laxity.dev/pool": None}}}, id="no pool"),
        pytest.param(FLEET[0], {"metadata": {"labels": {"team": "mine"}}}, id="another label"),
        pytest.param(FLEET[0], {"metadata": {"labels": {"type": None}}}, id="a label taken off"),
        pytest.param(FLEET[0], {"metadata": {"annotations": {"note": "mine"}}}, id="an annotation"),
        pytest.param(FLEET[0], {"spec": {"unschedulable": True}}, id="a cordon"),
        pytest.param(FLEET[0], {"spec": {"taints": []}}, id="its taints"),
    ],
)  # fmt: skip
def test_of_nodes_laxity_may_change_the_label_of_the_fleet_and_nothing_else(
    fleet: dict[str, Any], cluster: Cluster, node: str, body: dict[str, Any]
) -> None:
    label = {"metadata": {"labels": {"laxity.dev/pool": "loaned"}}}
    cluster.until(
        lambda: patch_as_laxity(cluster, FLEET[0], label)[0] == 200, 30.0, "it to have its right"
    )
    status, words = patch_as_laxity(cluster, node, body)
    assert (status, "laxity may" in words) == (422, True)
