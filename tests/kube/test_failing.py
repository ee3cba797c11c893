"""What laxity writes to fail a Job does fail it on Kubernetes, whatever its pods have come to."""

import json

import pytest

from laxity_k8s.act.failing import ENDS
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.conditions import condition
from tests.kube.cluster import Cluster
from tests.kube.kubectl import apply, kubectl
from tests.kube.service import training_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.mark.parametrize(
    ("has_failed", "suspended", "why"),
    [
        pytest.param(True, False, "BackoffLimitExceeded", id="a pod has failed"),
        pytest.param(True, True, "BackoffLimitExceeded", id="a pod has failed, suspended since"),
        pytest.param(False, False, "DeadlineExceeded", id="no pod could start"),
    ],
)
def test_a_job_is_failed_by_its_limits(
    cluster: Cluster, namespace: str, *, has_failed: bool, suspended: bool, why: str
) -> None:
    job = training_job(namespace, "fails", {}, labels={}, suspend=False)
    apply(cluster, {**job, "spec": {**job["spec"], "backoffLimit": 1000}})
    place = f"/apis/batch/v1/namespaces/{namespace}/jobs/fails"
    cluster.until(lambda: bool(pods_of(cluster, namespace)), 60.0, "its pod")

    if has_failed:
        fail(cluster, namespace, pods_of(cluster, namespace)[0])
        cluster.until(lambda: cluster.ask("GET", place)["status"].get("failed"), 60.0, "a failure")
    if suspended:
        patch(cluster, namespace, "job/fails", {"spec": {"suspend": True}})
    patch(cluster, namespace, "job/fails", {"spec": dict(ENDS)})

    cluster.until(
        lambda: condition(cluster.ask("GET", place), "Failed") == "True", 60.0, "the Job's end"
    )
    ends = cluster.ask("GET", place)["status"]["conditions"]
    assert {one["reason"] for one in ends if one["type"] == "Failed"} == {why}


def pods_of(cluster: Cluster, namespace: str) -> list[Json]:
    found: list[Json] = cluster.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod for pod in found if pod["status"].get("phase") == "Running"]


def fail(cluster: Cluster, namespace: str, pod: Json) -> None:
    end = {"exitCode": 1, "finishedAt": pod["metadata"]["creationTimestamp"]}
    named = pod["spec"]["containers"][0]["name"]
    status = {
        "phase": "Failed",
        "containerStatuses": [
            {**pod["status"]["containerStatuses"][0], "name": named, "state": {"terminated": end}}
        ],
    }
    named = f"pod/{pod['metadata']['name']}"
    patch(cluster, namespace, named, {"status": status}, "--subresource=status")


def patch(cluster: Cluster, namespace: str, what: str, body: Json, *more: str) -> None:
    kubectl(cluster, "-n", namespace, "patch", what, "--type=merge", "-p", json.dumps(body), *more)
