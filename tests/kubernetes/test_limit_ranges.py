"""A namespace's LimitRanges: laxity reads them as the API server does, and counts what they give pods."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from laxity_k8s.objects.limit_ranges import complete_template, find_breach
from laxity_k8s.objects.pod_requests import requests_of
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.kubectl import apply, tried
from tests.support.kubernetes.place import HARD, Place, annotations, complete, labels
from tests.support.kubernetes.service import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

GPU: Final = "nvidia.com/gpu"
WRONG: Final = {"PodsDoNotFit", "PromiseBroken", "PromiseInDanger", "WorkerDisplaced"}
ONE_CPU: Final = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "2Gi"}}
# limits of a LimitRange, the resources of containers and of those that run before them, refused?
SHAPES: Final[dict[str, tuple[Json, tuple[Json, ...], tuple[Json, ...], bool]]] = {
    "default request": ({"defaultRequest": {"cpu": "60"}}, ({},), ({},), False),
    "default limit": ({"default": {"cpu": "3", "memory": "1Gi"}}, ({}, ONE_CPU), (), False),
    "only what is not said": ({"defaultRequest": {"cpu": "1", "memory": "1Gi"}}, (ONE_CPU,), (), False),
    "a maximum is a default": ({"max": {GPU: "2"}}, ({}, {"limits": {GPU: "1"}}), (), False),
    "a minimum is a default": ({"min": {"cpu": "2"}}, ({},), (), False),
    "above a maximum": ({"max": {"cpu": "1"}}, (ONE_CPU,), (), True),
    "above it before": ({"max": {"cpu": "1"}}, ({},), (ONE_CPU,), True),
    "below a minimum": ({"min": {"cpu": "1500m"}}, (ONE_CPU,), (), True),
    "ratio": ({"maxLimitRequestRatio": {"cpu": "2"}}, (ONE_CPU,), (), False),
    "above a ratio": ({"maxLimitRequestRatio": {"cpu": "1.5"}}, (ONE_CPU,), (), True),
    "a ratio of nothing": ({"maxLimitRequestRatio": {"cpu": "2"}}, ({},), (), True),
    "pods below": ({"type": "Pod", "max": {"cpu": "4"}}, (ONE_CPU, ONE_CPU), (), False),
    "pods above": ({"type": "Pod", "max": {"cpu": "3"}}, (ONE_CPU, ONE_CPU), (), True),
    "pods before": ({"type": "Pod", "max": {"cpu": "1"}}, (), (ONE_CPU,), True),
    "pods without a limit": ({"type": "Pod", "max": {"cpu": "3"}}, ({},), (), True),
    "one without a limit": ({"type": "Pod", "max": {"cpu": "3"}}, ({}, ONE_CPU), (), False),
    "pods of too little": ({"type": "Pod", "min": {"cpu": "3"}}, (ONE_CPU, ONE_CPU), (), True),
    "pods of enough": ({"type": "Pod", "min": {"cpu": "2"}}, (ONE_CPU, ONE_CPU), (), False),
    "claims": ({"type": "PersistentVolumeClaim", "max": {"storage": "1"}}, (ONE_CPU,), (), False),
}  # fmt: skip


@pytest.fixture(scope="module")
def empty(cluster: Cluster) -> Iterator[str]:
    """A namespace in which pods are only tried."""
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ranges"}}
    account = f"/api/v1/namespaces/{made['metadata']['name']}/serviceaccounts/default"  # type: ignore[index]
    assert cluster.ask("POST", "/api/v1/namespaces", made)
    cluster.until(lambda: cluster.ask("GET", account) is not None, 30.0, "its account")
    yield "ranges"
    cluster.ask("DELETE", "/api/v1/namespaces/ranges")


def limit_range(namespace: str, limits: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"namespace": namespace, "name": "small"},
        "spec": {"limits": [{"type": "Container", **limits}]},
    }


def pod_of(namespace: str, together: tuple[Json, ...], before: tuple[Json, ...]) -> Json:
    """A pod of these containers, each by its resources."""
    containers: list[dict[str, Any]] = [
        {"name": f"c-{number}", "image": "none", "resources": resources}
        for number, resources in enumerate((*(together or ({},)), *before))
    ]
    many = len(together or ({},))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": "tried"},
        "spec": {"containers": containers[:many], "initContainers": containers[many:]},
    }


@pytest.mark.parametrize("kind", SHAPES)
def test_ranges_are_read_as_the_api_server_reads_them(
    cluster: Cluster, empty: str, kind: str
) -> None:
    limits, together, before, refused = SHAPES[kind]
    apply(cluster, limit_range(empty, limits))
    where = ("-n", empty)
    _, said = tried(cluster, *where, "get", "limitrange", "small", "-o", "json")
    stored, pod = json.loads(said), pod_of(empty, together, before)
    create = (*where, "create", "--dry-run=server", "-f", "-", "-o", "json")
    code, said = tried(cluster, *create, text=json.dumps(pod))
    tried(cluster, *where, "delete", "limitrange", "small")

    completed = complete_template(pod, [stored])

    assert (code != 0) is refused, said
    assert bool(find_breach(completed, [stored])) is refused, said
    if not refused:
        assert requests_of(completed) == requests_of(json.loads(said))


def test_workers_are_promised_with_the_cpus_that_their_namespace_gives_them(
    there: Place, cluster: Cluster
) -> None:
    name = "ranges-0"  # of 8 GPUs and 96 CPUs: one worker of 60
    made = simulated_node(name, 8)
    made["metadata"]["labels"]["ranges"] = "yes"
    assert cluster.ask("POST", "/api/v1/nodes", made)
    cluster.add_nodes(0)  # returns when all are ready
    there.apply(limit_range(there.namespace, {"defaultRequest": {"cpu": "60"}}))
    for number in range(2):
        job = there.job(f"one-{number}", {**HARD, "deadline": "20m"}, run_s=8.0)
        job["spec"]["template"]["spec"]["nodeSelector"] = {"ranges": "yes"}
        there.apply(job)
    wide = there.job("wide", {**HARD, "widths": "2"}, run_s=3.0)
    wide["spec"] |= {"parallelism": 2, "completions": 2}
    wide["spec"]["template"]["spec"]["nodeSelector"] = {"ranges": "yes"}
    there.apply(wide)

    refused = there.until_job("wide", lambda job: bool(labels(job).get("laxity.dev/verdict")), "")
    there.until(lambda: there.succeeded() == 2, "both to finish")
    cluster.ask("DELETE", f"/api/v1/nodes/{name}")

    assert labels(refused)["laxity.dev/verdict"] == "refused"
    assert "cpu" in annotations(refused)["laxity.dev/reason"]
    for number in range(2):
        job = there.until_job(f"one-{number}", complete, "finishes")
        assert labels(job)["laxity.dev/verdict"] == "promised"
        told = {event["reason"] for event in there.events(f"one-{number}")}
        assert told.isdisjoint(WRONG), told
