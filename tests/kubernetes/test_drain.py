"""Nodes that are emptied, and pods that make way: their Jobs start elsewhere, with no time lost."""

import json
from collections.abc import Iterator

import pytest

from laxity import names
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.history import kept, labels, width
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.namespace_jobs import (
    ELASTIC,
    GPUS,
    HARD,
    NamespaceJobs,
    open_namespace_jobs,
)
from tests.support.kubernetes.place import events_about
from tests.support.kubernetes.priority import FOREIGN, priority_class
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import Json, training_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]
SOON_S = 25.0  # on a busy machine; pods have 60 s to come up


@pytest.fixture(scope="module")
def replica(
    account: None,
    cluster: Cluster,
    service_forker: ServiceForker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Replica]:
    with Replica(cluster, service_forker, tmp_path_factory.mktemp("drain") / "service") as made:
        yield made


@pytest.fixture
def there(replica: Replica, cluster: Cluster, namespace: str) -> Iterator[NamespaceJobs]:
    with open_namespace_jobs(cluster, namespace, replica) as made:
        yield made
    for node in json.loads(kubectl(cluster, "get", "nodes", "-o", "json"))["items"]:
        kubectl(cluster, "uncordon", node["metadata"]["name"])


def nodes_of(there: NamespaceJobs, name: str) -> set[str]:
    """Where its workers run."""
    found = there.history.now()[1]
    return {
        pod["spec"]["nodeName"]
        for pod in found
        if pod["metadata"].get("labels", {}).get("job-name") == name
        and pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    }


def node_of(there: NamespaceJobs, name: str) -> str:
    there.until(lambda: there.formed([name]) == 1 and bool(nodes_of(there, name)), f"{name} to run")
    (node,) = nodes_of(there, name)
    return node


def elsewhere(there: NamespaceJobs, name: str, node: str) -> None:
    """Returns when it runs on other nodes."""
    there.cluster.until(
        lambda: bool(nodes_of(there, name)) and node not in nodes_of(there, name),
        SOON_S,
        f"{name} to leave {node}; log of the service: {there.replicas[0].log}",
    )
    there.until(lambda: width(there.named(name)) > 0, "its own word")


def reasons(there: NamespaceJobs, name: str) -> list[str]:
    return [one["reason"] for one in events_about(there.cluster, there.namespace, name)]


def until_told(there: NamespaceJobs, name: str, *why: str) -> None:
    """Events are written some moments after what they tell of."""
    there.until(lambda: {*why} <= set(reasons(there, name)), f"{name} to be told {why}")


def test_workers_leave_a_cordoned_node_at_the_end_of_their_epoch(there: NamespaceJobs) -> None:
    (name,) = there.apply(1, ELASTIC, run_s=None)
    node = node_of(there, name)
    kubectl(there.cluster, "cordon", node)
    elsewhere(there, name, node)
    until_told(there, name, "NodeCordoned", "StoppedAtEpoch")
    assert kept(there.named(name))["preemptions"] == 1
    late = there.apply(12, HARD)
    there.until(lambda: there.finished(late) == 12, "others to finish on three nodes")
    assert all(node not in json.loads(nodes) for nodes in sent(there, late))


def sent(there: NamespaceJobs, called: list[str]) -> list[str]:
    jobs = [there.named(name) for name in called]
    return [job["metadata"]["annotations"].get(names.NODES, "[]") for job in jobs]


def test_a_job_that_cannot_be_stopped_is_drained_and_goes_on_elsewhere_by_itself(
    there: NamespaceJobs,
) -> None:
    (name,) = there.apply(1, {**HARD, "preemptible": "false"}, run_s=None)
    node = node_of(there, name)
    kubectl(there.cluster, "cordon", node)
    kubectl(there.cluster, "drain", node, "--force", "--ignore-daemonsets", "--timeout=20s")
    elsewhere(there, name, node)
    assert not {"PodsDoNotFit", "NodeCordoned", "WorkerDisplaced"} & set(reasons(there, name))
    state = kept(there.named(name))
    assert (state.get("failed_starts", 0), state.get("preemptions", 0)) == (0, 0)


def test_a_drain_that_a_budget_holds_back_waits_for_the_end_of_the_epoch(
    there: NamespaceJobs,
) -> None:
    job = training_job(there.namespace, "guarded", ELASTIC)
    job["spec"]["template"]["metadata"]["labels"] = {"stops": "at-epochs"}
    apply(there.cluster, budget(there.namespace), job)
    there.until(lambda: "guarded" in there.history.jobs, "it is seen")
    node = node_of(there, "guarded")
    kubectl(there.cluster, "drain", node, "--force", "--ignore-daemonsets", "--timeout=25s")
    elsewhere(there, "guarded", node)
    until_told(there, "guarded", "NodeCordoned", "StoppedAtEpoch")
    assert "WorkerDisplaced" not in reasons(there, "guarded")


def test_a_job_is_told_which_idle_gpus_take_no_pod_and_runs_once_they_do(
    there: NamespaceJobs,
) -> None:
    shut = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule"
    kubectl(there.cluster, "taint", "nodes", "--all", shut)
    try:
        (name,) = there.apply(1, {**ELASTIC, "class": "best_effort"})

        def told() -> str:
            return str(there.named(name)["metadata"]["annotations"].get(names.REASON, ""))

        there.until(lambda: "take no pod now" in told(), f"{name} to be told; it was told {told()}")
        (node, *_) = GPUS
        assert f"{node} (shutdown)" in told()
    finally:
        kubectl(there.cluster, "taint", "nodes", "--all", f"{shut}-")
    there.until(lambda: there.finished([name]) == 1, f"{name} to finish")


def budget(namespace: str) -> Json:
    """As docs/kubernetes/nodes.md shows it."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "trainings", "namespace": namespace},
        "spec": {"minAvailable": 1_000_000, "selector": {"matchLabels": {"stops": "at-epochs"}}},
    }


def test_a_job_refused_for_a_cordoned_node_is_asked_again_when_it_is_uncordoned(
    there: NamespaceJobs,
) -> None:
    node = next(iter(GPUS))
    job = training_job(there.namespace, "tied", HARD, run_s=1.5)
    job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    kubectl(there.cluster, "cordon", node)
    apply(there.cluster, job)
    there.until(lambda: verdict(there) == "refused", "its refusal")
    kubectl(there.cluster, "uncordon", node)
    there.until(lambda: verdict(there) == "promised", "its promise")
    there.until(lambda: there.finished(["tied"]) == 1, "it to run")


def verdict(there: NamespaceJobs) -> str:
    job = there.history.jobs.get("tied")
    return "" if job is None else labels(job).get(names.VERDICT_LABEL, "")


@pytest.mark.parametrize("stop_for", ["2s", "0s"])
def test_a_job_whose_pod_was_preempted_by_priority_starts_elsewhere(
    there: NamespaceJobs, stop_for: str
) -> None:
    """The scheduler finds it another node. No start has failed."""
    name, job = "modest", training_job(there.namespace, "modest", {**HARD, "preemptible": "false"})
    job["spec"]["template"]["metadata"]["annotations"]["test.laxity/stop-for"] = stop_for
    apply(there.cluster, job)
    there.until(lambda: name in there.history.jobs, "it is seen")
    node = node_of(there, name)
    apply(there.cluster, priority_class(), urgent_pod(there.namespace, node))
    try:
        elsewhere(there, name, node)
    finally:
        kubectl(there.cluster, "delete", "priorityclass", FOREIGN)
        kubectl(there.cluster, "-n", there.namespace, "delete", "pod", FOREIGN)
    assert not {"PodsDoNotFit", "WorkerDisplaced"} & set(reasons(there, name))
    assert kept(there.named(name)).get("failed_starts", 0) == 0


def urgent_pod(namespace: str, node: str) -> Json:
    """It wants all GPUs of one node."""
    container = {"name": "serve", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": FOREIGN, "namespace": namespace},
        "spec": {
            "priorityClassName": FOREIGN,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
        },
    }
