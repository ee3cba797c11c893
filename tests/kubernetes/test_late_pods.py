"""Pods that do not come up in time, on a cluster whose scheduler or job controller is gone."""

import json
import time
from collections.abc import Iterator
from typing import Final

import pytest

from laxity import names
from laxity.instants import instant_at
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.history import kept, width
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import apply, kubectl, tried
from tests.support.kubernetes.namespace_jobs import (
    GPUS,
    HARD,
    WHENEVER,
    NamespaceJobs,
    elapse,
    open_namespace_jobs,
)
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import Json, training_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]
WITHIN_S = 6.0
PODS: Final = "/api/v1/namespaces/{}/pods"


@pytest.fixture(scope="module")
def replica(
    account: None,
    cluster: Cluster,
    service_forker: ServiceForker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("late") / "service"
    with Replica(cluster, service_forker, folder, pods_within_s=WITHIN_S) as made:
        yield made


@pytest.fixture
def there(replica: Replica, cluster: Cluster, namespace: str) -> Iterator[NamespaceJobs]:
    with open_namespace_jobs(cluster, namespace, replica) as made:
        yield made


def events(there: NamespaceJobs, reason: str) -> list[str]:
    said = kubectl(there.cluster, "-n", there.namespace, "get", "events", "-o", "json")
    return [one["message"] for one in json.loads(said)["items"] if one["reason"] == reason]


def test_a_job_whose_pods_find_no_node_is_told_why_and_holds_nobody_up(
    there: NamespaceJobs,
) -> None:
    """Beside which pods it may run, the scheduler alone knows."""
    apply(there.cluster, lonely(there, "greedy", HARD))
    there.until(lambda: "greedy" in there.history.jobs, "it is seen")
    there.until(lambda: kept(there.named("greedy")).get("failed_starts") == 2, "it failed twice")
    there.until(lambda: len(events(there, "PodsDoNotFit")) == 2, "that is told")
    first, second = sorted(events(there, "PodsDoNotFit"), key=len)
    assert first.startswith("only 0 of 1 pod ran in the time that they have for it: worker 0 has")
    assert "didn't match pod affinity rules" in first
    assert second == f"{first}; it is tried again in 1m00s"
    assert (width(there.named("greedy")), kept(there.named("greedy"))["preemptions"]) == (0, 2)
    others = there.apply(sum(GPUS.values()), WHENEVER)
    there.until(lambda: there.finished(others) == len(others), "others to finish on all GPUs")
    assert there.problems() == []


def lonely(there: NamespaceJobs, name: str, asked: dict[str, str]) -> Json:
    """A Job whose pods wait for one that never comes."""
    nearby = {"labelSelector": {"matchLabels": {"app": "none"}}, "topologyKey": "type"}
    job = training_job(there.namespace, name, asked)
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [nearby]}
    job["spec"]["template"]["spec"]["affinity"] = {"podAffinity": required}
    return job


def test_a_promise_that_no_try_can_keep_is_told_so_before_the_deadline(
    there: NamespaceJobs,
) -> None:
    asked = {**HARD, "epochs": "1", "epoch-estimate": "1s", "deadline": "60s"}
    apply(there.cluster, lonely(there, "late", asked))

    there.until(lambda: bool(events(there, "NoTryInTime")), "that is told")

    due_at = instant_at(there.named("late")["metadata"]["annotations"][names.PROMISED_DEADLINE])
    assert due_at is not None
    assert time.time() < due_at
    there.until(lambda: bool(events(there, "PromiseBroken")), "the deadline to pass")
    assert time.time() < due_at + 10.0


def test_pods_that_cannot_end_are_named_and_endanger_the_promise(there: NamespaceJobs) -> None:
    job = training_job(there.namespace, "stuck", HARD)
    job["spec"]["template"]["metadata"]["annotations"]["test.laxity/stop-for"] = "1200s"
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    apply(there.cluster, job)
    there.until(lambda: there.running(["stuck"]) == 1, "it to run")
    where = ("-n", there.namespace)
    pod = kubectl(there.cluster, *where, "get", "pods", "-o", "name").strip().partition("/")[2]
    node = there.history.pods[pod]["spec"]["nodeName"]

    kubectl(there.cluster, *where, "delete", "pod", pod, "--wait=false")
    there.until(lambda: bool(events(there, "PodsCannotEnd")), "that is told")
    there.until(lambda: bool(events(there, "PromiseInDanger")), "its promise to be in danger")
    words = f"pod {pod} on node {node} has been ending since "
    assert events(there, "PodsCannotEnd")[0].startswith(words)

    over = ("--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Failed"}}')
    kubectl(there.cluster, *where, "patch", "pod", pod, *over)
    there.until(lambda: there.running(["stuck"]) == 1, "it to run again")


def test_job_whose_pods_pod_security_refuses_is_told_in_the_servers_words(
    there: NamespaceJobs,
) -> None:
    level = "pod-security.kubernetes.io/enforce=baseline"
    kubectl(there.cluster, "label", "namespace", there.namespace, level)
    job = training_job(there.namespace, "mounts", HARD)
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "hostPath": {"path": "/data"}}]
    apply(there.cluster, job)
    there.until(lambda: bool(events(there, "PodsDoNotFit")), "that is told")
    assert events(there, "PodsDoNotFit")[0] == (
        "only 0 of 1 pod ran in the time that they have for it: violates PodSecurity "
        '"baseline:latest": hostPath volumes (volume "data")'
    )


DENIES: Final = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "needs-team"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                     "resources": ["pods"]}
                ]
            },
            "matchConditions": [
                {"name": "by-name", "expression": "object.metadata.generateName.startsWith('teamless')"}
            ],
            "validations": [{"expression": "false", "message": "every pod needs label team"}],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "needs-team"},
        "spec": {"policyName": "needs-team", "validationActions": ["Deny"]},
    },
]  # fmt: skip


def test_job_whose_pods_a_policy_refuses_is_told_the_policys_words(there: NamespaceJobs) -> None:
    apply(there.cluster, *DENIES)
    try:
        there.cluster.until(lambda: is_denied(there), 60.0, "the policy to be enforced")
        apply(there.cluster, training_job(there.namespace, "teamless", HARD))
        there.until(lambda: bool(events(there, "PodsDoNotFit")), "that is told")
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            kubectl(there.cluster, "delete", kind, "needs-team")
    assert events(there, "PodsDoNotFit")[0].endswith("every pod needs label team")


def is_denied(there: NamespaceJobs) -> bool:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "teamless"}}
    pod["spec"] = {"containers": [{"name": "main", "image": "none"}]}
    where = ("-n", there.namespace, "create", "--dry-run=server", "-f", "-")
    return "label team" in tried(there.cluster, *where, text=json.dumps(pod))[1]


def test_job_whose_pods_a_scoped_quota_refuses_is_told_which(there: NamespaceJobs) -> None:
    scope = {"operator": "In", "scopeName": "PriorityClass", "values": ["scarce"]}
    spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}
    scarce = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 0}
    place = {"name": "few", "namespace": there.namespace}
    job = training_job(there.namespace, "scoped", HARD)
    job["spec"]["template"]["spec"]["priorityClassName"] = "scarce"

    apply(there.cluster, scarce | {"metadata": {"name": "scarce"}})
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": place, "spec": spec}
    apply(there.cluster, quota)
    ready = "jsonpath={.status.hard.pods}=0"
    kubectl(there.cluster, "-n", there.namespace, "wait", f"--for={ready}", "resourcequota/few")
    apply(there.cluster, job)
    there.until(lambda: bool(events(there, "PodsDoNotFit")), "that is told")

    assert "exceeded quota: few" in events(there, "PodsDoNotFit")[0]


def test_scheduler_that_does_not_answer_is_named(there: NamespaceJobs) -> None:
    job = training_job(there.namespace, "unscheduled", HARD)
    job["spec"]["template"]["spec"]["schedulerName"] = "volcano"

    apply(there.cluster, job)
    there.until(lambda: bool(events(there, "PodsDoNotFit")), "that is told")

    words = "worker 0 has no node: scheduler volcano has not answered"
    assert events(there, "PodsDoNotFit")[0].endswith(words)


def test_job_whose_volume_cannot_be_mounted_is_told_the_kubelets_words(
    there: NamespaceJobs,
) -> None:
    """Its node has no kubelet: what one would say is written as its Event by hand."""
    silent = simulated_node("silent", 1)
    silent["metadata"]["labels"] = {"kubernetes.io/hostname": "silent"}
    silent["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    there.cluster.ask("POST", "/api/v1/nodes", silent)
    job = training_job(there.namespace, "mounts", HARD)
    job["spec"]["template"]["spec"]["nodeSelector"] = silent["metadata"]["labels"]
    words = 'MountVolume.SetUp failed for volume "data" : secret "missing" not found'
    told: set[str] = set()
    try:
        apply(there.cluster, job)
        there.until(lambda: fails_to_mount(there, told, words), "that is told")
    finally:
        there.cluster.ask("DELETE", "/api/v1/nodes/silent")
        there.cluster.ask("DELETE", f"{PODS.format(there.namespace)}?gracePeriodSeconds=0")
    expected = "only 0 of 1 pod ran in the time that they have for it: worker 0 waits on silent: "
    assert any(said.startswith(expected + words) for said in events(there, "PodsDoNotFit"))


def fails_to_mount(there: NamespaceJobs, told: set[str], words: str) -> bool:
    """Whether laxity tells it; each pod that has a node gets its Event first."""
    for pod in (there.cluster.ask("GET", PODS.format(there.namespace)) or {"items": []})["items"]:
        if pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in told:
            about = {key: pod["metadata"][key] for key in ("name", "namespace", "uid")}
            event = {
                "metadata": {"generateName": "mounts-", "namespace": there.namespace},
                "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
                "type": "Warning", "reason": "FailedMount", "message": words,
            }  # fmt: skip
            path = f"/api/v1/namespaces/{there.namespace}/events"
            assert there.cluster.ask("POST", path, event)
            told.add(pod["metadata"]["uid"])
    return any(words in said for said in events(there, "PodsDoNotFit"))


def test_a_job_that_its_controller_has_not_seen_started_is_waited_for(there: NamespaceJobs) -> None:
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
