"""Workers that have lost their place: waited for some seconds, and told from failed starts."""

from dataclasses import replace

import pytest

from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.pods import OVERDUE_S
from laxity_k8s.observe.displaced import UNSCHEDULABLE_S
from laxity_scheduler.inflight import follow_ups
from laxity_scheduler.model.start_backoff import FAILED_START_CODES
from tests.support.builders import cluster
from tests.support.manifests import CREATED, CREATED_AT, EVER_SUSPENDED, node, pod
from tests.support.trained_job import FIT_S, NOW, Seen, trained_for_an_hour


@pytest.mark.parametrize(("nominated", "waits_s"), [("", 10.0), ("b", FIT_S)])
def test_a_pod_without_a_node_is_waited_for_some_seconds(nominated: str, waits_s: float) -> None:
    """Longer where the scheduler preempts others for it: then it has as good as a node."""
    seen: Seen = trained_for_an_hour()
    seen.lose(1)
    seen.look(NOW + 1.0)
    waiting = pod(1, phase="Pending")
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waiting["status"]["conditions"] = [
        {**unscheduled, "lastTransitionTime": "2026-11-21T08:00:00Z"}
    ]
    waiting["status"]["nominatedNodeName"] = nominated
    seen.put(waiting)
    assert seen.look(NOW + 1.0 + waits_s - 0.1).fitting_workers is None
    assert seen.look(NOW + 1.0 + waits_s).fitting_workers == 1


def unschedulable(number: int, *, created: str = CREATED) -> Json:
    waiting = pod(number, phase="Pending", created=created)
    waiting["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/4 nodes are available",
            "lastTransitionTime": "2026-11-21T08:00:00Z",
        }
    ]
    return waiting


def test_a_worker_that_ran_and_vanished_at_once_has_failed_no_start() -> None:
    """Preempted by priority, say, and gone before anybody saw why."""
    seen: Seen = trained_for_an_hour()
    seen.lose(1)
    seen.look(NOW + 1.0)
    seen.put(unschedulable(1))
    row = seen.look(NOW + 1.0 + UNSCHEDULABLE_S)
    assert row.displaced == "worker 1 has lost its place and has no node: 0/4 nodes are available"
    (stop,) = follow_ups(cluster(gpus=8, jobs=[replace(row, nodes=("n0", "n0"), widths=(2,))]))
    assert stop.reason.code not in FAILED_START_CODES


def test_a_worker_that_lost_its_place_before_the_service_started_has_failed_no_start() -> None:
    seen = Seen()
    seen.has(EVER_SUSPENDED)
    seen.put(pod(0, node="a"))
    seen.put(unschedulable(1, created="2026-11-21T08:00:11Z"))
    seen.look(NOW)
    row = seen.look(NOW + FIT_S)
    assert row.displaced.startswith("worker 1 has lost its place")
    (stop,) = follow_ups(cluster(gpus=8, jobs=[replace(row, nodes=("n0", "n0"), widths=(2,))]))
    assert stop.reason.code not in FAILED_START_CODES


def test_a_worker_that_never_ran_has_failed_its_start() -> None:
    seen = Seen()
    seen.put(pod(0, node="a"))
    seen.put(unschedulable(1))
    seen.look(NOW)
    row = seen.look(NOW + FIT_S)
    assert (row.displaced, row.fitting_workers) == ("", 1)
    (stop,) = follow_ups(cluster(gpus=8, jobs=[replace(row, nodes=("n0", "n0"), widths=(2,))]))
    assert stop.reason.code in FAILED_START_CODES


def test_pods_for_which_no_node_is_found_hold_no_gpus() -> None:
    seen = Seen()
    seen.put(node("a", gpus=4))
    seen.put(pod(0, node="a"))
    seen.put(unschedulable(1))

    early = seen.free_gpus(CREATED_AT)
    late = seen.free_gpus(CREATED_AT + UNSCHEDULABLE_S)

    assert (early, late) == (2, 3)


def test_pods_that_should_have_ended_are_named_with_node_and_instant() -> None:
    seen = Seen()
    leaving = pod(1, node="b", leaving=True)
    leaving["metadata"] |= {
        "deletionTimestamp": "2026-11-21T08:01:00Z",
        "deletionGracePeriodSeconds": 30,
        "finalizers": ["example.com/backup", "batch.kubernetes.io/job-tracking"],
    }
    seen.put(leaving)
    over_at = CREATED_AT + 60.0 + OVERDUE_S

    seen.put(pod(0, node="a"))
    before, after = seen.look(over_at - 1.0), seen.look(over_at)

    assert (before.cannot_end, before.fitting_workers) == ("", None)
    assert (after.fitting_workers, after.pending) == (1, after.cannot_end), "no more is waited"
    assert after.cannot_end == (
        f"pod {leaving['metadata']['name']} on node b has been ending since 2026-11-21T08:00:30Z, "
        "kept by finalizer example.com/backup"
    )


def test_a_new_pod_has_its_time_beside_an_old_one_that_cannot_end() -> None:
    seen = Seen()
    leaving = pod(1, node="b", leaving=True)
    leaving["metadata"] |= {"deletionTimestamp": "2026-11-21T08:01:00Z"}
    coming = pod(1, phase="Pending", node="a")
    coming["metadata"] |= {"name": "job-1-new", "creationTimestamp": "2026-11-21T08:01:10Z"}
    for each in (leaving, coming, pod(0, node="a")):
        seen.put(each)
    begun_at = CREATED_AT + 60.0 + OVERDUE_S

    assert seen.look(begun_at).fitting_workers is None
    assert seen.look(begun_at + FIT_S).fitting_workers == 1


def test_the_words_of_the_scheduler_are_told_whole() -> None:
    seen = Seen()
    waiting = unschedulable(0)
    words = "0/4 nodes are available: " + ", ".join(f"{n} Insufficient r{n}" for n in range(25))
    waiting["status"]["conditions"][0]["message"] = words
    seen.put(waiting)
    seen.put(pod(1, node="a"))
    seen.look(NOW)

    assert seen.look(NOW + FIT_S).pending == f"worker 0 has no node: {words}"
