"""Where a waiting pod of the local cluster goes."""

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.local.scheduler import find_bindings
from laxity_k8s.objects.node_rows.affinity import affinity_patch
from tests.support.manifests import job, node, pod


def bound(*waiting: Json, placed: tuple[Json, ...] = (), made: Json | None = None) -> list[str]:
    """Nodes of the waiting pods, in their order; "" for one that goes on waiting."""
    nodes = [node("a", 2), node("b", 4), node("c", 4, unschedulable=True)]
    found = find_bindings(waiting, placed, nodes, {"default/job": made or job()}, Guard("test"))
    return [found.get(json_tree.object_id(one), "") for one in waiting]


def pending(index: int) -> Json:
    return pod(index, phase="Pending")


def test_a_pod_goes_to_the_fullest_node_that_holds_it() -> None:
    assert bound(pending(0), pending(1), pending(2)) == ["a", "a", "b"]


def test_a_pod_goes_where_its_job_was_sent_if_there_is_room() -> None:
    assert bound(pending(0), pending(1), made=job(nodes='["b", "a"]')) == ["b", "a"]
    full = tuple(pod(index, of="other", node="b") for index in range(4))
    assert bound(pending(0), placed=full, made=job(nodes='["b"]')) == ["a"]


def test_a_pod_goes_elsewhere_where_its_named_node_is_full_but_not_where_gpus_are_held() -> None:
    full = tuple(pod(index, of="other", node="a") for index in range(2))
    free, barred = pending(0), pending(0)

    free["spec"] |= (affinity_patch(job(), ["a"]) or {})["spec"]
    barred["spec"] |= (affinity_patch(job(), ["a"], ["b"]) or {})["spec"]

    assert bound(free, placed=full) == ["b"]
    assert bound(barred, placed=full) == [""]


@pytest.mark.parametrize(
    ("there", "want"),
    [
        pytest.param(pod(1, of="other", node="a", leaving=True), "b", id="leaving holds its GPU"),
        pytest.param(pod(1, of="other", node="a", phase="Failed"), "a", id="over frees its GPU"),
    ],
)
def test_gpus_are_free_when_a_pod_is_over_and_not_before(there: Json, want: str) -> None:
    assert bound(pending(0), placed=(pod(2, of="other", node="a"), there)) == [want]


@pytest.mark.parametrize(
    ("pool", "want"), [("inference", ""), ("loaned", "mine"), ("training", "mine")]
)
def test_no_pod_goes_to_a_node_that_inference_has_not_lent(pool: str, want: str) -> None:
    nodes = [node("mine", 2, labels={"laxity.dev/pool": pool})]
    bindings = find_bindings([pending(0)], (), nodes, {"default/job": job()}, Guard("test"))
    assert bindings.get(json_tree.object_id(pending(0)), "") == want
