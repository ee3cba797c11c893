"""A node that is there holds the workers that run on it, whatever it lists as allocatable."""

import pytest

from laxity import json_tree, names
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_k8s.observe.accelerator_counts import RELIST_S
from laxity_scheduler.inflight import follow_ups
from laxity_scheduler.model.cluster import ClusterState, Node
from tests.support.empty_cluster import Observed
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, job, node, pod

NOW = CREATED_AT + 3_600.0
GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"


class Eye(Observed):
    """A node of 8 GPUs, with a job of two workers with 3 GPUs each; `look` is one observation."""

    def __init__(self, *, resource: str = GPU) -> None:
        super().__init__()
        self.now, self.resource = NOW, resource
        limits = {"limits": {resource: "3"}}
        running = job(width=2, suspend=False, nodes='["n", "n"]', status=EVER_SUSPENDED)
        state = JobStatusRecord(resumed_at=CREATED_AT, width_changed_at=CREATED_AT, wanted=2)
        running["metadata"]["annotations"][names.STATUS] = state.to_text()
        workers = [pod(0, node="n"), pod(1, node="n")]
        for thing in (running["spec"]["template"], *workers):
            thing["spec"]["containers"][0]["resources"] = limits
        self.put(running, *workers)
        self.workers = [f"default/{made['metadata']['name']}" for made in workers]
        self.lists(8)

    def lists(self, *gpus: int, capacity: int = 0, uid: str = "first") -> None:
        """The node lists so many; no argument: it does not list the resource at all."""
        made = node("n")
        made["metadata"]["uid"] = uid
        listed = {self.resource: str(gpus[0])} if gpus else {}
        made["status"]["allocatable"] = {"cpu": "96", **listed}
        made["status"]["capacity"] = {"cpu": "96", self.resource: str(capacity)}
        self.put(made)

    def ends(self, worker: int) -> None:
        self.cache.drop_object("pods", self.workers[worker])

    def look(self, after_s: float = 1.0) -> ClusterState:
        self.now += after_s
        return self.observe(self.now)

    def row(self, after_s: float = 1.0) -> Node:
        (row,) = self.look(after_s).nodes
        return row


def counts(row: Node) -> tuple[int, int, int]:
    return row.gpus, row.free_gpus, row.away_gpus


@pytest.mark.parametrize("resource", [GPU, SLICE])
@pytest.mark.parametrize("listed", [(0,), ()], ids=["none", "not at all"])
def test_workers_stay_on_a_node_that_lists_no_gpu(listed: tuple[int, ...], resource: str) -> None:
    seen = Eye(resource=resource)
    before = seen.row()
    seen.lists(*listed)

    for after_s in (0.0, 2.0, RELIST_S, 86_400.0):
        state = seen.look(after_s)
        assert follow_ups(state) == ()
        assert state.jobs[0].nodes == (before.id,) * 2
        assert state.free_gpus == 0
    seen.lists(8)
    assert seen.row() == before


def test_idle_gpus_of_a_restarting_plugin_are_expected_back_for_a_minute() -> None:
    seen = Eye()
    before = seen.row()
    seen.lists(0)

    restarting, late = seen.row(), seen.row(RELIST_S)
    due_at = seen.snapshot.due_at
    seen.lists(8)

    assert (counts(before), counts(restarting), counts(late)) == ((8, 2, 0), (8, 0, 2), (0, -6, 0))
    assert due_at > seen.now
    assert counts(seen.row()) == (8, 2, 0)


def test_the_snapshot_is_due_when_a_plugin_has_had_its_time() -> None:
    seen = Eye()
    seen.row()
    seen.lists(0)
    seen.row()
    assert seen.snapshot.due_at == seen.now + RELIST_S


def test_each_restart_of_a_plugin_has_its_own_minute() -> None:
    seen = Eye()
    for _ in range(3):
        seen.lists(8)
        seen.row(RELIST_S / 2)
        seen.lists(0)
        assert counts(seen.row(RELIST_S / 2)) == (8, 0, 2)


def test_a_service_that_starts_meanwhile_expects_what_the_kubelet_knows() -> None:
    seen = Eye()
    seen.lists(0, capacity=8)
    assert [counts(seen.row(after_s)) for after_s in (0.0, RELIST_S)] == [(8, 0, 2), (0, -6, 0)]
    seen.lists(0)
    assert counts(seen.row()) == (0, -6, 0)


def test_gpus_that_a_plugin_no_longer_lists_are_lost_at_once() -> None:
    seen = Eye()
    seen.row()
    seen.lists(3)

    state = seen.look()
    seen.ends(0)
    half = seen.row()
    seen.ends(1)
    seen.put({**seen.cache.jobs["default/job"], "spec": {"suspend": True}})

    assert follow_ups(state) == ()
    assert counts(state.nodes[0]) == (3, -3, 0)
    assert (state.free_gpus, state.capacity("").free_gpus) == (0, 0)
    assert counts(half) == (3, 0, 0)
    assert counts(seen.row()) == (3, 3, 0)


def test_a_deleted_node_is_gone_at_once_and_back_with_its_pods() -> None:
    seen = Eye()
    before = seen.row()
    seen.cache.drop_object("nodes", "n")
    gone = seen.look()
    seen.lists(0)
    again = seen.look()

    assert [type(decision).__name__ for decision in follow_ups(gone)] == ["Preempt"]
    assert follow_ups(again) == ()
    assert counts(again.nodes[0]) == (0, -6, 0), "another machine may have other GPUs"
    seen.lists(8)
    assert seen.row() == before
    seen.lists(0, uid="deleted and made anew unseen")
    assert counts(seen.row()) == (0, -6, 0)


def test_a_node_that_waits_to_be_deleted_is_emptied_like_a_cordoned_one() -> None:
    seen = Eye()
    made = node("n", gpus=8)
    made["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    seen.put(made)
    state = seen.look()
    assert (state.nodes[0].pool, state.free_gpus) == ("cordoned", 0)
    assert [decision.reason.code for decision in follow_ups(state)] == ["node_cordoned"]


def test_a_silent_node_is_expected_back_until_it_counts_as_lost() -> None:
    seen = Eye()
    seen.row()
    silent = node("n", gpus=8, ready=False)
    silent["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-21T09:00:00Z"
    seen.put(silent)
    assert [counts(row) for after_s in (1.0, 40.0) for row in seen.look(after_s).nodes] == [
        (8, 0, 2)
    ]
    back = node("n", gpus=8)
    back["spec"]["taints"] = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    seen.put(back)
    assert counts(seen.row()) == (8, 0, 2)


def test_pods_of_others_on_a_node_without_gpus_take_none_elsewhere() -> None:
    seen = Eye()
    seen.cache.drop_object("jobs", "default/job")
    seen.put(node("m", gpus=8))
    seen.look()
    seen.lists(0)
    state = seen.look(RELIST_S + 1.0)
    state = seen.look(RELIST_S + 1.0)
    assert [(row.id, *counts(row)) for row in state.nodes] == [("m", 8, 8, 0)]
    assert json_tree.object_id(seen.cache.nodes["n"]) == "n"
