"""Pods that do not come up in time, on a cluster whose scheduler or job controller is gone."""

import json
from collections.abc import Iterator

import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.ground import GPUS, HARD, WHENEVER, Ground, elapse, ground
from tests.support.kubernetes.history import kept, width
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.mortal import Nursery
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import training_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]
WITHIN_S = 6.0


@pytest.fixture(scope="module")
def replica(
    account: None, cluster: Cluster, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("late") / "service"
    with Replica(cluster, nursery, folder, pods_within_s=WITHIN_S) as made:
        yield made


@pytest.fixture
def there(replica: Replica, cluster: Cluster, namespace: str) -> Iterator[Ground]:
    with ground(cluster, namespace, replica) as made:
        yield made


def events(there: Ground, reason: str) -> list[str]:
    said = kubectl(there.cluster, "-n", there.namespace, "get", "events", "-o", "json")
    return [one["message"] for one in json.loads(said)["items"] if one["reason"] == reason]


def test_a_job_whose_pods_find_no_node_is_told_why_and_holds_nobody_up(there: Ground) -> None:
    """laxity counts GPUs; what else a pod asks for, the scheduler alone knows."""
    job = training_job(there.namespace, "greedy", HARD)
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "500"}
    apply(there.cluster, job)
    there.until(lambda: "greedy" in there.history.jobs, "it is seen")
    there.until(lambda: kept(there.named("greedy")).get("failed_starts") == 2, "it failed twice")
    there.until(lambda: len(events(there, "PodsDoNotFit")) == 2, "that is told")
    first, second = sorted(events(there, "PodsDoNotFit"), key=len)
    assert first.startswith("only 0 of 1 pod ran in the time that they have for it: worker 0 has")
    assert "Insufficient cpu" in first
    assert second == f"{first}; it is tried again in 1m00s"
    assert (width(there.named("greedy")), kept(there.named("greedy"))["preemptions"]) == (0, 2)
    others = there.apply(sum(GPUS.values()), WHENEVER)
    there.until(lambda: there.finished(others) == len(others), "others to finish on all GPUs")
    assert there.problems() == []


def test_a_job_whose_pods_pod_security_forbids_is_told_what_of_them(there: Ground) -> None:
    """Its controller's own Events are not the service's to read; the namespace's label is."""
    level = "pod-security.kubernetes.io/enforce=baseline"
    kubectl(there.cluster, "label", "namespace", there.namespace, level)
    job = training_job(there.namespace, "mounts", HARD)
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "hostPath": {"path": "/data"}}]
    apply(there.cluster, job)
    there.until(lambda: bool(events(there, "PodsDoNotFit")), "that is told")
    assert events(there, "PodsDoNotFit")[0] == (
        "only 0 of 1 pod ran in the time that they have for it: the pod template breaks pod "
        "security level 'baseline' of its namespace: volumes: data must be no hostPath"
    )


def test_a_job_that_its_controller_has_not_seen_started_is_waited_for(there: Ground) -> None:
    """What is suspended then may have pods all the same, when the controller is back."""
    before = there.apply(2, WHENEVER)
    there.until(lambda: there.finished(before) == 2, "two jobs to finish")
    there.cluster.stop("kube-controller-manager", hard=True)
    (late,) = there.apply(1, WHENEVER)
    there.until(lambda: late in there.history.jobs and width(there.named(late)) == 1, "its start")
    elapse(3 * WITHIN_S)
    assert width(there.named(late)) == 1
    there.cluster.start_controller_manager()
    there.until(lambda: there.finished([late]) == 1, "it to finish")
    assert kept(there.named(late)).get("preemptions", 0) == 0
    assert there.problems() == []
