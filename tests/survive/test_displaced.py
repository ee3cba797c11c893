"""Workers that cannot come back to their nodes are seen at once; others are waited for."""

from dataclasses import replace

import pytest

from laxity_k8s.cluster_api import Json
from laxity_k8s.observe.displaced import UNSCHEDULABLE_S, find_displacements
from laxity_scheduler.inflight import follow_ups
from laxity_scheduler.model.start_backoff import FAILED_START_CODES
from tests.support.builders import cluster
from tests.support.manifests import CREATED, EVER_SUSPENDED, job, node, pod
from tests.support.trained_job import FIT_S, NOW, Seen, trained_for_an_hour

CORDONED = "a"


def emptied(name: str) -> bool:
    return name == CORDONED


def made_for(made: Json, *nodes: str) -> Json:
    """A pod that waits and may go to these nodes only."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]}
    required = {"nodeSelectorTerms": [term]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    made["spec"]["affinity"] = {"nodeAffinity": {key: required}}
    return made


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        pytest.param(pod(0, node="a"), "", id="it runs on a cordoned node"),
        pytest.param(
            pod(0, node="a", leaving=True, disrupted=True),
            "worker 0 is evicted from a, which is cordoned",
            id="drained",
        ),
        pytest.param(pod(0, node="b", leaving=True, disrupted=True), "", id="evicted, node open"),
        pytest.param(pod(0, node="b", leaving=True), "", id="deleted by hand"),
        pytest.param(
            pod(0, node="b", leaving=True, disrupted=True, disruption="PreemptionByScheduler"),
            "worker 0 makes way on b for a pod of higher priority",
            id="preempted",
        ),
        pytest.param(
            pod(0, node="b", leaving=True, disrupted=True, disruption="DeletionByTaintManager"),
            "worker 0 is evicted from b, which has a taint that it does not tolerate",
            id="tainted",
        ),
        pytest.param(
            made_for(pod(0, phase="Pending"), "a"),
            "worker 0 cannot come back: a is cordoned",
            id="made anew for a cordoned node",
        ),
        pytest.param(made_for(pod(0, phase="Pending"), "a", "b"), "", id="it may go elsewhere"),
        pytest.param(pod(0, node="a", phase="Failed", disrupted=True), "", id="over"),
        pytest.param(pod(1, node="a", leaving=True), "", id="beyond the width: scaled away"),
    ],
)
def test_a_worker_that_has_lost_its_place_is_told_from_one_that_comes_back(
    worker: Json, why: str
) -> None:
    found = find_displacements(job(suspend=False), [worker], emptied)
    assert found == ({0: why} if why else {})


def test_a_job_of_many_items_moves_only_when_a_pod_has_no_place() -> None:
    items = job(width=2, suspend=False, spec={"completions": 6})
    leaves = pod(0, node="a", leaving=True, disrupted=True)
    assert find_displacements(items, [leaves, pod(1, node="b")], emptied) == {}
    assert find_displacements(
        items, [made_for(pod(2, phase="Pending"), "a"), pod(1, node="b")], emptied
    )


def test_the_others_of_a_drained_worker_are_counted_without_it_at_once() -> None:
    seen = trained_for_an_hour()
    seen.put("pods", pod(1, node="a", leaving=True, disrupted=True))
    assert seen.look(NOW + 1.0).fitting_workers is None
    seen.put("nodes", node("a", unschedulable=True))
    row = seen.look(NOW + 2.0)
    assert (row.fitting_workers, row.displaced) == (
        1,
        "worker 1 is evicted from a, which is cordoned",
    )
    seen.put("nodes", node("a"))
    assert seen.look(NOW + 3.0).displaced == ""


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
    seen.put("pods", waiting)
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
    seen.put("pods", unschedulable(1))
    row = seen.look(NOW + 1.0 + UNSCHEDULABLE_S)
    assert row.displaced == "worker 1 has lost its place and has no node: 0/4 nodes are available"
    (stop,) = follow_ups(cluster(gpus=8, jobs=[replace(row, nodes=("n0", "n0"), widths=(2,))]))
    assert stop.reason.code not in FAILED_START_CODES


def test_a_worker_that_lost_its_place_before_the_service_started_has_failed_no_start() -> None:
    seen = Seen()
    seen.has(EVER_SUSPENDED)
    seen.put("pods", pod(0, node="a"))
    seen.put("pods", unschedulable(1, created="2026-11-21T08:00:11Z"))
    seen.look(NOW)
    row = seen.look(NOW + FIT_S)
    assert row.displaced.startswith("worker 1 has lost its place")
    (stop,) = follow_ups(cluster(gpus=8, jobs=[replace(row, nodes=("n0", "n0"), widths=(2,))]))
    assert stop.reason.code not in FAILED_START_CODES


def test_a_worker_that_never_ran_has_failed_its_start() -> None:
    seen = Seen()
    seen.put("pods", pod(0, node="a"))
    seen.put("pods", unschedulable(1))
    seen.look(NOW)
    row = seen.look(NOW + FIT_S)
    assert (row.displaced, row.fitting_workers) == ("", 1)
    (stop,) = follow_ups(cluster(gpus=8, jobs=[replace(row, nodes=("n0", "n0"), widths=(2,))]))
    assert stop.reason.code in FAILED_START_CODES
