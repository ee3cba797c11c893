"""Whatever is watched, missed or listed anew: the counts are those of a service that starts now."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity import json_tree
from laxity_k8s.cluster_api import Change, Json, Kind, Listing
from laxity_k8s.objects.jobs import NO_REPORT
from laxity_k8s.observe.accelerator_counts import RELIST_S
from laxity_k8s.observe.cluster_cache import FOLLOWED, ClusterCache
from laxity_k8s.observe.snapshot import Snapshot
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, job, node, pod

JOBS, NODES, PODS = ("a", "b"), ("n0", "n1"), ("p0", "p1", "p2")


class Truth:
    """All objects as they are, and the changes that each watch has not told yet."""

    def __init__(self) -> None:
        self.revision = 0
        self.there: dict[Kind, dict[str, Json]] = {kind: {} for kind in FOLLOWED}
        self.queues: dict[Kind, list[Change]] = {kind: [] for kind in FOLLOWED}
        self.tell: dict[Kind, Callable[[Change], None]] = {}
        self.cut: dict[Kind, Callable[[bool], None]] = {}

    def list(self, kind: Kind) -> Listing:
        return Listing(tuple(self.there[kind].values()), str(self.revision))

    def watch(self, kind: Kind, **calls: Any) -> None:
        self.tell[kind], self.cut[kind] = calls["on_change"], calls["on_cut"]

    def put(self, kind: Kind, thing: Json) -> None:
        self._change(kind, "MODIFIED", thing)
        self.there[kind][json_tree.object_id(thing)] = thing

    def drop(self, kind: Kind, key: str) -> None:
        if key in self.there[kind]:
            self._change(kind, "DELETED", copy.deepcopy(self.there[kind].pop(key)))

    def _change(self, kind: Kind, how: Any, thing: Json) -> None:
        self.revision += 1
        thing["metadata"]["resourceVersion"] = str(self.revision)
        self.queues[kind].append(Change(how, thing))

    def is_told(self, kind: Kind) -> None:
        for change in self.queues[kind]:
            self.tell[kind](change)
        self.queues[kind].clear()

    def is_cut(self, kind: Kind) -> None:
        """Changes are missed, and all is listed anew at the end."""
        self.cut[kind](True)
        self.queues[kind].clear()
        self.cut[kind](False)

    # what may happen; a verb without its object does nothing

    def make_job(self, name: str, width: int) -> None:
        made = job(name, width=width, suspend=False, status=EVER_SUSPENDED)
        made["metadata"]["uid"] = f"uid-{self.revision}"
        self.put("jobs", made)

    def delete_job(self, name: str, _: int) -> None:
        self.drop("jobs", f"default/{name}")

    def make_pod(self, name: str, number: int) -> None:
        made = pod(number % 2, node=NODES[number % 2])
        made["metadata"] |= {"name": name, "uid": f"pod-{self.revision}", "ownerReferences": []}
        self.put("pods", made)

    def own_pod(self, name: str, number: int) -> None:
        """Made by, adopted by or handed over to the Job, or orphaned."""
        owner = self.there["jobs"].get(f"default/{(*JOBS, '')[number % 3]}")
        reference = {"kind": "Job", "controller": True}
        if owner is not None:
            reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        self._edit_pod(name, ownerReferences=[] if owner is None else [reference])

    def end_pod(self, name: str, _: int) -> None:
        self._edit_pod(name, phase="Succeeded")

    def delete_pod(self, name: str, number: int) -> None:
        if number % 2:
            self._edit_pod(name, deletionTimestamp="2026-11-21T08:00:00Z")
        else:
            self.drop("pods", f"default/{name}")

    def _edit_pod(self, name: str, *, phase: str = "", **metadata: Any) -> None:
        there = self.there["pods"].get(f"default/{name}")
        if there is not None:
            edited = copy.deepcopy(there)
            edited["metadata"] |= metadata
            edited["status"]["phase"] = phase or edited["status"]["phase"]
            self.put("pods", edited)

    def make_node(self, name: str, gpus: int) -> None:
        self.put("nodes", node(name, gpus, unschedulable=gpus == 3, labels={"gpus": str(gpus)}))

    def delete_node(self, name: str, _: int) -> None:
        self.drop("nodes", name)


class Service:
    """What a service has made of it."""

    def __init__(self, truth: Truth) -> None:
        self.cache = ClusterCache(truth, lambda: None)  # type: ignore[arg-type]
        self.snapshot = Snapshot(self.cache, lambda _: NO_REPORT, fit_within_s=60.0)

    def counts(self, now: float) -> tuple[Any, ...]:
        """GPUs of each node, workers and their nodes of each job, and GPUs of pods of others."""
        with self.cache.take_dirty() as (touched, nodes):
            state = self.snapshot.take_state(touched, nodes=nodes, now=now, cycle=1)
        jobs = [(row.id, row.workers, row.nodes, row.terminating_workers) for row in state.jobs]
        return state.nodes, jobs, [self.snapshot.foreign_gpus([name]) for name in NODES]


def verbs(names: tuple[str, ...], *chosen: str) -> Any:
    return st.tuples(st.sampled_from(chosen), st.sampled_from(names), st.integers(0, 5))


EVENTS = st.lists(
    st.one_of(
        verbs(JOBS, "make_job", "delete_job"),
        verbs(PODS, "make_pod", "own_pod", "own_pod", "end_pod", "delete_pod"),
        verbs(NODES, "make_node", "make_node", "delete_node"),
        st.tuples(st.sampled_from(["is_told", "is_cut"]), st.sampled_from(FOLLOWED)),
        st.just(()),
    ),
    max_size=40,
)


@given(EVENTS)
def test_counts_are_those_of_a_fresh_list(events: list[tuple[Any, ...]]) -> None:
    truth = Truth()
    for name in NODES:
        truth.make_node(name, 4)
    service = Service(truth)
    for event in events:
        if event:
            getattr(truth, event[0])(*event[1:])
        else:
            service.counts(CREATED_AT)
    for kind in FOLLOWED:
        truth.is_told(kind)
    if service.cache.torn:
        service.cache.resync(truth)  # type: ignore[arg-type]
    service.counts(CREATED_AT)  # from here a plugin has its minute

    later, fresh = CREATED_AT + RELIST_S, Service(truth)
    assert service.counts(later) == fresh.counts(later)
    assert (service.cache.job_ids, service.cache.pods_of) == (
        fresh.cache.job_ids,
        fresh.cache.pods_of,
    )


@pytest.mark.parametrize("handed_to", [2, 1], ids=["orphaned", "another Job's"])
def test_a_pod_that_changes_its_owner_is_counted_once(handed_to: int) -> None:
    truth = Truth()
    for name in NODES:
        truth.make_node(name, 4)
    for name in JOBS:
        truth.make_job(name, 1)
    truth.make_pod("p0", 0)
    truth.own_pod("p0", 0)
    service = Service(truth)
    service.counts(CREATED_AT)
    before = copy.deepcopy(truth.there["pods"]["default/p0"])
    truth.own_pod("p0", handed_to)
    truth.tell["pods"](truth.queues["pods"][-1])

    group = ("pod:default/p0", "default/b")[handed_to == 1]
    assert before["metadata"]["ownerReferences"][0]["name"] == "a"
    assert dict(service.cache.pods_of) == {group: truth.there["pods"]}
    assert service.counts(CREATED_AT) == Service(truth).counts(CREATED_AT)
