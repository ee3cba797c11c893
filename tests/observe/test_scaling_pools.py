"""Nodes that may come, as the snapshot has them: how many, for whom, and how long they take.

Pool "spot" has up to two nodes of 8 GPUs, which come within 4 minutes.
"""

from pathlib import Path

import pytest

from laxity import names
from laxity_k8s.objects.jobs import NO_REPORT
from laxity_k8s.objects.node_rows.scaling_pool import read_pools
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_k8s.observe.scaling_pools import BACKOFF
from laxity_k8s.observe.snapshot import Snapshot
from laxity_scheduler.capacity.eligibility import never_starts
from laxity_scheduler.model.cluster import ClusterState, Coming
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.pool_arrivals import Arrival, PoolArrivals
from laxity_scheduler.service.pool_keeper import PoolKeeper
from laxity_scheduler.service.settings import Settings, SettingsError
from laxity_scheduler.store.store import Store
from tests.support.empty_cluster import Observed
from tests.support.manifests import CREATED, CREATED_AT, EVER_SUSPENDED, job, node, pod

WITHIN_S = 240.0
SPOT = """
- name: spot
  labels: {pool: spot}
  allocatable: {nvidia.com/gpu: 8, cpu: 96}
  nodes: NODES
  within: 4m
"""


class Eye(Observed):
    """A cluster without nodes; `look` is one observation, at so many seconds after a start."""

    def __init__(self, nodes: int = 2) -> None:
        super().__init__(pools=read_pools(SPOT.replace("NODES", str(nodes))))
        self.look(-1.0)

    def start(
        self, name: str = "job", number: int = 1, *, gpus: int = 8, after_s: float = 0.0
    ) -> None:
        """A Job of one worker is started on a node of spot; the scheduler finds no node."""
        at = CREATED_AT + after_s
        state = JobStatusRecord(resumed_at=at, width_changed_at=at, wanted=1)
        nodes = f'["spot+{number}"]'
        made = job(name, gpus=gpus, suspend=False, nodes=nodes, status=EVER_SUSPENDED)
        made["metadata"]["annotations"][names.STATUS] = state.to_text()
        made["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "spot"}
        waits = pod(of=name, phase="Pending")
        waits["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": f"{gpus}"}}
        waits["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": "0/0 nodes", "lastTransitionTime": CREATED}
        ]  # fmt: skip
        self.put(made, waits)

    def stop(self, name: str = "job") -> None:
        """Its Job is suspended, and its pod is gone."""
        template = self.cache.jobs[f"default/{name}"]["spec"]["template"]
        self.put(job(name, spec={"template": template}))
        self.cache.drop_object("pods", next(iter(self.cache.pods_of[f"default/{name}"])))

    def come(self, name: str = "real", gpus: int = 8) -> None:
        self.put(node(name, gpus=gpus, labels={"pool": "spot"}))

    def bind(self, at: str) -> None:
        bound = pod(phase="Pending", node="real")
        bound["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
        bound["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
        ]
        self.put(bound)

    def look(self, after_s: float) -> ClusterState:
        return self.observe(CREATED_AT + after_s)


def free(state: ClusterState) -> dict[str, int]:
    return {row.id: row.free_gpus for row in state.nodes}


def the_job(state: ClusterState) -> Job:
    (row,) = state.jobs
    return row


def test_nodes_that_may_come_are_those_of_the_pool_that_are_not_there() -> None:
    seen = Eye()
    before = seen.look(0.0)
    seen.come()
    seen.put(node("other", gpus=4))
    seen.come("starting", gpus=0)

    assert free(before) == {"spot+1": 8, "spot+2": 8}
    assert before.nodes[0].coming == Coming("spot", WITHIN_S, WITHIN_S)
    assert free(seen.look(1.0)) == {"other": 4, "real": 8, "spot+1": 8}


def test_without_the_setting_the_snapshot_is_what_it_was() -> None:
    seen = Eye()
    plain = Snapshot(seen.cache, lambda _: NO_REPORT, fit_within_s=60.0)
    seen.come()
    seen.start()
    state = plain.take_state(set(seen.cache.jobs), nodes=True, now=CREATED_AT + 5.0, cycle=1)
    assert [row.id for row in state.nodes] == ["real"]
    assert the_job(state).restarted_at is None


def test_pods_have_the_time_of_their_pool_and_no_more() -> None:
    seen = Eye()
    seen.start()
    seen.look(1.0)
    early = seen.look(WITHIN_S - 1.0)
    due_at = seen.snapshot.due_at
    late = seen.look(WITHIN_S)

    assert the_job(early).nodes == ("spot+1",)
    assert the_job(early).start_began_at == due_at == CREATED_AT + WITHIN_S
    assert (the_job(early).fitting_workers, free(early)["spot+1"]) == (None, 0)
    assert the_job(late).fitting_workers == 0
    assert the_job(late).pending.startswith("no node of pool spot came within 4m00s; worker 0 has")


def test_pool_that_did_not_come_is_not_counted_on_for_a_while() -> None:
    seen = Eye()
    seen.start()
    seen.look(WITHIN_S)
    seen.stop()
    shut = seen.look(WITHIN_S + 1.0)
    due_at = seen.snapshot.due_at
    open_again = seen.look(WITHIN_S + BACKOFF.first_s)

    assert free(shut) == {}
    assert due_at == CREATED_AT + WITHIN_S + BACKOFF.first_s
    assert free(open_again) == {"spot+1": 8, "spot+2": 8}


def test_two_starts_that_wait_for_the_same_nodes_in_vain_are_one_failure_of_the_pool() -> None:
    seen = Eye()
    seen.start()
    seen.start("second", 2, after_s=1.0)
    seen.look(2.0)
    seen.look(WITHIN_S)
    seen.stop()
    seen.look(WITHIN_S + 0.5)
    seen.look(WITHIN_S + 1.0)
    seen.stop("second")
    shut = seen.look(WITHIN_S + 2.0)

    assert seen.snapshot.due_at == CREATED_AT + WITHIN_S + BACKOFF.first_s
    why = never_starts(shut, shut.by_id["default/job"])
    assert why is not None
    words = why.text
    assert "LAXITY_POOLS" not in words, "the pool is named there"
    assert "pool spot: no node came within 4m00s; it is counted on again at " in words
    assert "not-counted-on" not in words


def test_nobody_joins_who_still_waits_for_a_pool_that_did_not_come() -> None:
    seen = Eye()
    seen.start()
    seen.start("second", 2, gpus=2, after_s=100.0)
    before = seen.look(101.0)
    seen.look(WITHIN_S)
    seen.stop()
    after = seen.look(WITHIN_S + 1.0)

    assert never_starts(before, before.by_id["default/job"]) is None
    why = never_starts(after, after.by_id["default/job"])
    assert why is not None
    assert why.code == "no_eligible_node"
    assert after.by_id["default/second"].workers == 1, "its own time is not over"


@pytest.mark.parametrize("nodes", [1, 2])
def test_node_that_came_is_kept_until_the_pods_for_it_are_there(nodes: int) -> None:
    seen = Eye(nodes)
    seen.start()
    seen.look(1.0)
    seen.come()
    came = seen.look(100.0)
    seen.bind("2026-11-21T08:01:41Z")
    bound = seen.look(102.0)

    assert free(came) == {"real": 0, "spot+1": 0}
    assert free(bound) == {"real": 0, "spot+1": 8} if nodes > 1 else {"real": 0}
    assert the_job(bound).nodes == ("real",)
    assert the_job(bound).start_began_at == CREATED_AT + 101.0


@pytest.mark.parametrize("after_s", [100.0, WITHIN_S + 60.0], ids=["in time", "late"])
def test_delay_is_learned_from_the_start_to_the_node(after_s: float) -> None:
    seen = Eye()
    seen.start()
    for at_s in (1.0, min(after_s, WITHIN_S)):
        seen.look(at_s)
    seen.come()
    seen.look(after_s)
    assert seen.snapshot.pools.arrivals.find_unsaved() == [
        Arrival("spot", CREATED_AT + after_s, after_s)
    ]
    seen.bind("2026-11-21T08:06:00Z")
    assert free(seen.look(after_s + 60.0)) == {"real": 0, "spot+1": 8}, "counted on again"


def test_what_was_learned_takes_the_place_of_the_setting() -> None:
    arrivals = PoolArrivals()
    expected = []
    for at, seconds in enumerate([100.0, 110.0, 120.0, 300.0, 130.0]):
        arrivals.add(Arrival("spot", float(at), seconds))
        expected.append(arrivals.expect("spot", WITHIN_S))
    assert expected[0] == Coming("spot", WITHIN_S, 100.0)
    assert expected[3].within_s == 300.0
    assert (expected[4].within_s, expected[4].usually_s) == (300.0, 120.0)
    assert arrivals.expect("other", WITHIN_S) == Coming("other", WITHIN_S, WITHIN_S)


def test_what_was_learned_outlives_the_service(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    arrivals, later = PoolArrivals(), PoolArrivals()
    keeper = PoolKeeper(store, arrivals)
    arrivals.add(Arrival("spot", 5.0, 190.0))
    keeper.save()
    keeper.save()
    PoolKeeper(store, later)
    store.close()
    assert later.expect("spot", WITHIN_S) == Coming("spot", WITHIN_S, 190.0)
    assert arrivals.find_unsaved() == later.find_unsaved() == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("within: 4m", "within: 4", "within: .* Write the unit"),
        ("nodes: 2", "nodes: 0", "0.nodes: .* greater than or equal to 1"),
        ("nodes: 2", "node: 2", "0.nodes?: "),
        ("labels: {pool: spot}", "labels: {}", "0.labels: "),
        ("nvidia.com/gpu: 8", "memory: 8Gi", "pool spot names no accelerator in allocatable"),
        ("cpu: 96", "cpu: many", "'many' is no quantity"),
        ("name: spot", "name: Spot+1", "0.name: "),
        ("- name", "name", "valid list|no YAML"),
    ],
)
def test_setting_that_makes_no_sense_is_refused_by_field(old: str, new: str, words: str) -> None:
    text = SPOT.replace("NODES", "2").replace(old, new)
    with pytest.raises(SettingsError, match=f"LAXITY_POOLS.*({words})"):
        read_pools(text)


def test_two_pools_of_one_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="two pools have one name"):
        read_pools(SPOT.replace("NODES", "2") * 2)


def test_one_machine_has_no_pools() -> None:
    with pytest.raises(SettingsError, match="world local has no pools that scale"):
        Settings(pools=SPOT)
