"""Watches of Jobs and Pods are cut and drift apart: a GPU that either calls busy is busy."""

import json
from typing import Any

import pytest

from laxity import json_tree, names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.affinity import affinity_patch
from laxity_k8s.objects.status_annotation import JobStatusRecord
from tests.support.manifests import CREATED_AT, SUSPENDED, node, pod
from tests.support.manifests import job as made_job
from tests.support.seen_nodes import Seen


def job(name: str = "job", *, sent: str = "aa", may: str = "a", **more: Any) -> Json:
    """A Job that laxity sent to these nodes; its pods may go to `may`."""
    made = made_job(
        name, **{"width": len(sent), "suspend": False, "nodes": json.dumps(list(sent)), **more}
    )
    state = JobStatusRecord(resumed_at=CREATED_AT, width_changed_at=CREATED_AT, wanted=len(sent))
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    return {
        **made,
        "spec": json_tree.merge_patch(made["spec"], {"template": affinity_patch(made, list(may))}),
    }


def status(active: int, terminating: int = 0, **more: Any) -> Json:
    return {"active": active, "terminating": terminating, **more}


SCALED_IN = {  # GPUs that the Job calls busy, and the Job as it goes from two workers to one
    "before": (2, job(sent="aa", status=status(2))),
    "patched": (2, job(sent="a", status=status(2))),
    "terminating": (2, job(sent="a", status=status(1, 1))),
    "done": (1, job(sent="a", status=status(1))),
}


STOPPED = {
    "before": (2, job(sent="aa", status=status(2))),
    "patched": (2, job(sent="aa", suspend=True, status=status(2))),
    "patched before pods were made": (2, job(sent="aa", suspend=True, status=status(0))),
    "terminating": (2, job(sent="aa", suspend=True, status=status(0, 2) | SUSPENDED)),
    "done": (0, job(sent="aa", suspend=True, status=status(0) | SUSPENDED)),
}


PODS: dict[str, tuple[int, list[Json]]] = {  # GPUs that its pods take, and the pods
    "not seen yet": (0, []),
    "seen without a node": (0, [pod(0, phase="Pending"), pod(1, phase="Pending")]),
    "running": (2, [pod(0, node="a"), pod(1, node="a")]),
    "one is leaving": (2, [pod(0, node="a"), pod(1, node="a", leaving=True)]),
    "one is gone": (1, [pod(0, node="a")]),
}


@pytest.mark.parametrize("pods", PODS)
@pytest.mark.parametrize("at", SCALED_IN)
def test_a_job_made_narrower_holds_what_it_or_its_pods_say(at: str, pods: str) -> None:
    (by_job, made), (by_pods, own) = SCALED_IN[at], PODS[pods]
    if at == "done" and pods == "seen without a node":
        by_pods = 2  # index 1 has to go; it may have been bound before it was told
    assert Seen(made, *own).busy() == {"a": max(by_job, by_pods), "b": 0}


@pytest.mark.parametrize("pods", ["not seen yet", "running", "one is leaving", "one is gone"])
@pytest.mark.parametrize("at", STOPPED)
def test_a_stopped_job_holds_what_it_or_its_pods_say(at: str, pods: str) -> None:
    (by_job, made), (by_pods, own) = STOPPED[at], PODS[pods]
    assert Seen(made, *own).busy() == {"a": max(by_job, by_pods), "b": 0}


def test_what_was_unseen_is_counted_once_when_it_is_seen_and_freed_when_it_is_gone() -> None:
    seen = Seen(SCALED_IN["terminating"][1], pod(0, node="a"))
    assert seen.busy()["a"] == 2
    leaving = pod(1, node="a", leaving=True)
    seen.put(leaving)
    assert seen.busy()["a"] == 2
    seen.put(SCALED_IN["done"][1])
    assert seen.busy()["a"] == 2
    seen.cache.drop_object("pods", json_tree.object_id(leaving))
    assert seen.busy()["a"] == 1


def test_a_worker_seen_to_end_is_free_before_its_job_has_counted_it() -> None:
    made = job(sent="aa", status=status(2))
    over = pod(1, node="a", phase="Succeeded")
    assert Seen(made, pod(0, node="a"), over).busy()["a"] == 1
    counted = job(sent="aa", status=status(1, succeeded=1))
    assert Seen(counted, pod(0, node="a"), over).busy()["a"] == 1


def test_a_finished_or_deleted_job_holds_its_terminating_workers() -> None:
    made = job(sent="aa", status=status(0, 2))
    made["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    assert Seen(made).busy()["a"] == 2


def test_pods_that_wait_beside_a_job_that_somebody_else_let_go_hold_nothing() -> None:
    made = made_job(width=3, suspend=False, status=status(3))
    waiting = [pod(number, phase="Pending") for number in range(3)]
    assert Seen(made, *waiting).busy() == {"a": 0, "b": 0}
    assert sum(Seen(made).busy().values()) == 3, "not seen at all, they may run"


def test_unseen_workers_are_where_their_job_may_go() -> None:
    made = job(sent="a", may="ab", status=status(1, 2))
    full = [pod(number, of="other", node="a") for number in range(3)]
    assert Seen(made, pod(0, node="a"), *full).busy() == {"a": 4, "b": 2}


def test_a_worker_whose_place_was_taken_holds_a_gpu_elsewhere() -> None:
    """Both workers of `roams` went to node a, where room was kept for `stays`."""
    stays = job("stays", sent="aaa", may="a")
    roams = job("roams", sent="ab", may="ab", status=status(2))
    seen = Seen(stays, roams, pod(0, of="roams", node="a"), pod(1, of="roams", node="a"))
    assert seen.busy() == {"a": 4, "b": 1}
    seen.cache.drop_object("jobs", "default/stays")
    assert seen.busy() == {"a": 2, "b": 0}


def test_pods_beyond_what_a_node_still_has_take_nothing_elsewhere() -> None:
    """A device broke: what is bound stays there."""
    seen = Seen(*[pod(number, of="other", node="a") for number in range(4)])
    seen.put(node("a", gpus=3))
    assert seen.busy() == {"a": 3, "b": 0}


def test_a_started_job_that_makes_no_sense_any_more_keeps_the_gpus_of_workers_on_their_way() -> (
    None
):
    """What its user breaks after it was started must not put two where there is room for one."""
    made = job(sent="aab", may="ab", status=status(0))
    made["metadata"]["annotations"][names.EPOCHS] = "many"
    seen = Seen(made)
    assert seen.busy() == {"a": 2, "b": 1}
    assert seen.snapshot.bad.keys() == {"default/job"}
    seen.put(pod(0, node="a"), pod(2, node="b"))
    assert seen.busy() == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    "first", [pod(0, phase="Pending"), pod(0, node="a")], ids=["waits", "runs"]
)
def test_a_second_pod_of_the_same_worker_counts_before_it_has_a_node(first: Json) -> None:
    """A job controller that was cut off makes it where it has not seen its own first one."""
    second = pod(0, phase="Pending", ended="2026-11-21T08:00:09Z")
    assert Seen(job(sent="a", status=status(1)), first).busy() == {"a": 1, "b": 0}
    assert Seen(job(sent="a", status=status(1)), first, second).busy() == {"a": 2, "b": 0}
