"""What laxity writes to fail a Job does fail it on Kubernetes, whatever its pods have come to."""

import json
import time
from collections.abc import Callable

import pytest

from laxity import names
from laxity_k8s.act.adoption import failure_patch, success_patch
from laxity_k8s.cluster_api import Json, Patch
from laxity_k8s.objects.conditions import read_condition
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.kubectl import apply, kubectl, tried
from tests.support.kubernetes.service import training_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.mark.parametrize(
    ("has_failed", "suspended"),
    [
        pytest.param(True, False, id="a pod has failed"),
        pytest.param(True, True, id="a pod has failed, suspended since"),
        pytest.param(False, False, id="a pod runs"),
        pytest.param(None, True, id="it has never run"),
    ],
)
def test_a_job_is_failed_by_its_status_in_the_words_of_laxity(
    cluster: Cluster, namespace: str, *, has_failed: bool | None, suspended: bool
) -> None:
    place = f"/apis/batch/v1/namespaces/{namespace}/jobs/fails"
    apply(cluster, training_job(namespace, "fails", {}, labels={}, suspend=has_failed is None))
    if has_failed is not None:
        cluster.until(lambda: bool(pods_of(cluster, namespace)), 60.0, "its pod")
    if has_failed:
        fail(cluster, namespace, pods_of(cluster, namespace)[0])
        cluster.until(lambda: cluster.ask("GET", place)["status"].get("failed"), 60.0, "a failure")
    if suspended:
        patch(cluster, namespace, "job/fails", {"spec": {"suspend": True}})
        cluster.until(
            lambda: read_condition(cluster.ask("GET", place), "Suspended") == "True",
            60.0,
            "its stop",
        )
    job = end(
        cluster, place, lambda job: failure_patch(job, "WorkersKeepFailing", "boo", now=time.time())
    )

    cluster.until(
        lambda: read_condition(cluster.ask("GET", place), "Failed") == "True", 60.0, "the Job's end"
    )
    ended = cluster.ask("GET", place)
    ends = {one["type"]: (one["reason"], one["message"]) for one in ended["status"]["conditions"]}
    assert ends["Failed"] == ("WorkersKeepFailing", "boo")
    assert ended["metadata"]["annotations"][names.REASON] == "boo"
    assert ended["spec"] == job["spec"]
    cluster.until(lambda: not pods_of(cluster, namespace), 60.0, "its pods to be gone")


def test_a_suspended_job_is_completed_by_its_status_though_its_pod_has_failed(
    cluster: Cluster, namespace: str
) -> None:
    place = f"/apis/batch/v1/namespaces/{namespace}/jobs/returns"
    apply(cluster, training_job(namespace, "returns", {}, labels={}, suspend=False))
    cluster.until(lambda: bool(pods_of(cluster, namespace)), 60.0, "its pod")
    fail(cluster, namespace, pods_of(cluster, namespace)[0])
    cluster.until(lambda: cluster.ask("GET", place)["status"].get("failed"), 60.0, "a failure")
    patch(cluster, namespace, "job/returns", {"spec": {"suspend": True}})
    cluster.until(
        lambda: read_condition(cluster.ask("GET", place), "Suspended") == "True", 60.0, "its stop"
    )
    end(cluster, place, lambda job: success_patch(job, "it has returned", now=time.time()))

    cluster.until(
        lambda: read_condition(cluster.ask("GET", place), "Complete") == "True", 60.0, "its end"
    )
    cluster.until(lambda: not pods_of(cluster, namespace), 60.0, "its pods to be gone")


def end(cluster: Cluster, place: str, make: Callable[[Json], Patch]) -> Json:
    """The Job as it was when its end was written: anew where its controller has changed it meanwhile."""
    seen: list[Json] = []

    def is_written() -> bool:
        seen[:] = [cluster.ask("GET", place)]
        body = json.dumps(make(seen[0]).body)
        name, namespace = seen[0]["metadata"]["name"], seen[0]["metadata"]["namespace"]
        what = ("patch", f"job/{name}", "--type=merge", "-p", body, "--subresource=status")
        code, words = tried(cluster, "-n", namespace, *what)
        assert code == 0 or "the object has been modified" in words, words
        return code == 0

    cluster.until(is_written, 60.0, "its end to be written")
    return seen[0]


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
