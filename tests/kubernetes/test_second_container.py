"""A training whose pod has a second container, with real controllers and simulated kubelets."""

import json
from collections.abc import Iterator

import pytest

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects.conditions import read_condition
from laxity_scheduler.live import Report
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.kubectl import apply, kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def world(cluster: Cluster) -> Iterator[LiveCluster]:
    """Workers have returned whatever runs."""
    made = LiveCluster(KubernetesApi(cluster.kubeconfig), lambda _: Report(finished=True))
    yield made
    made.close()


def test_training_beside_a_container_that_stays_is_completed(
    cluster: Cluster, namespace: str, world: LiveCluster, two_containers: Json
) -> None:
    job_id = f"{namespace}/proxied"
    apply(cluster, two_containers)

    def see(done: str) -> bool:
        world.observe()
        job = next((job for job in world.jobs() if done_id(job) == job_id), {})
        return bool(job.get("status", {}).get("ready")) if done == "ready" else is_complete(job)

    cluster.until(lambda: see("ready"), 60.0, "its pod to run")
    end_first_container(cluster, namespace)
    cluster.until(lambda: see("complete"), 60.0, "it to be complete")


@pytest.fixture
def two_containers(namespace: str) -> Json:
    """A running Job whose second container never ends; its grace is a second."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    containers: list[Json] = [
        {"name": "train", "image": "none", "resources": limits},
        {"name": "proxy", "image": "none"},
    ]
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": containers}
    status = json.dumps({"wanted": 1})
    notes = {names.DEADLINE: "1h", names.EPOCHS: "1", names.STATUS: status}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "proxied",
            "namespace": namespace,
            "labels": {names.MANAGED: "true"},
            "annotations": notes,
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": 1,
            "parallelism": 1,
            "template": {"spec": pod},
        },
    }


def done_id(job: Json) -> str:
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"


def is_complete(job: Json) -> bool:
    return read_condition(job, "Complete") == "True"


def end_first_container(cluster: Cluster, namespace: str) -> None:
    """As a kubelet does when the training exits with 0 and its proxy runs on."""
    (pod,) = cluster.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    ends = {"terminated": {"exitCode": 0, "finishedAt": pod["metadata"]["creationTimestamp"]}}
    statuses = pod["status"]["containerStatuses"]
    for status in statuses:
        if status["name"] == "train":
            status |= {"state": ends, "ready": False}
    patch = json.dumps({"status": {"containerStatuses": statuses}})
    name = pod["metadata"]["name"]
    where = ("-n", namespace, "patch", "pod", name, "--subresource", "status", "--type", "merge")
    kubectl(cluster, *where, "-p", patch)
