"""Nodes that an autoscaler may add: what is promised on them, who starts on them, and what is told.

Node n0 is there; spot+1 and so on may come within 4 minutes of a start. Epochs take a minute.
"""

from dataclasses import replace

import pytest

from laxity_scheduler.capacity.kept_nodes import find_kept_nodes
from laxity_scheduler.model.cluster import ClusterState, Coming, Node, NodeSet
from laxity_scheduler.model.decision import Admit, Forecasted, Promised, Refuse, Resize
from laxity_scheduler.model.job import Job, Promise
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import apply_plan, check_plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.policies.registry import REGISTRY, find
from laxity_scheduler.store.codec import encode_record, load_state
from tests.support.builders import MINUTE_EPOCHS, cluster, job, node, promised

SPOT = Coming("spot", 240.0, 190.0)


def spot(number: int = 1, gpus: int = 1) -> Node:
    return node(f"spot+{number}", gpus, pool="coming", coming=SPOT)


def state_of(*jobs: Job, there: int = 0, spots: int = 1, gpus: int = 1) -> ClusterState:
    """Set "spot" is the pool, with n0 of `there` GPUs outside it."""
    state = cluster(gpus=[there] if there else [], jobs=jobs)
    coming = tuple(spot(number + 1, gpus) for number in range(spots))
    names = frozenset(one.id for one in coming)
    sets = {"pool=spot": NodeSet(names, "n0: pool=spot is asked")}
    return replace(state, nodes=(*state.nodes, *coming), sets=sets)


def planned(state: ClusterState) -> Plan:
    plan = decide(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    return plan


def starts(state: ClusterState) -> dict[str, tuple[str, ...]]:
    return {one.job: one.nodes for one in planned(state).decisions if isinstance(one, Admit)}


def test_pool_of_no_nodes_is_promised_with_its_delay() -> None:
    state = state_of(job("a", due_at=1200.0, eligible="pool=spot"))
    (told,) = [one for one in planned(state).decisions if isinstance(one, Promised)]
    assert told.promise.p90_at == pytest.approx(840.0)
    assert starts(state) == {"team/a": ("spot+1",)}


def test_deadline_that_leaves_no_time_for_nodes_to_come_is_refused() -> None:
    state = state_of(job("a", due_at=700.0, eligible="pool=spot"))
    (told,) = [one for one in planned(state).decisions if isinstance(one, Refuse)]
    assert told.refusal.p90_at == pytest.approx(840.0, abs=5.0)
    assert [offer.kind for offer in told.refusal.offers] == ["deadline"]
    assert not starts(state)


def test_job_without_deadline_starts_on_nodes_that_may_come() -> None:
    state = state_of(job("a", eligible="pool=spot"))
    (told,) = [one for one in planned(state).decisions if isinstance(one, Forecasted)]
    assert told.forecast.p90_at == pytest.approx(840.0)
    assert starts(state) == {"team/a": ("spot+1",)}


def test_nodes_that_are_there_come_first() -> None:
    assert starts(state_of(job("a", due_at=1200.0), there=1)) == {"team/a": ("n0",)}


def test_full_cluster_grows_instead_of_refusing() -> None:
    runs = promised("first", 3600.0, running=1, epochs=50)
    state = state_of(runs, job("a", due_at=1200.0), there=1)
    assert starts(state) == {"team/a": ("spot+1",)}


def test_job_planned_sooner_on_nodes_there_waits_for_these() -> None:
    runs = job("first", running=1, epochs=2, preemptible=False)
    state = state_of(runs, job("a", due_at=1200.0), there=1)
    assert not starts(state)
    assert not starts(replace(state, sets=None))


def test_wide_job_takes_nodes_there_and_nodes_that_come() -> None:
    state = state_of(job("a", due_at=1200.0, workers=(2,)), there=1)
    assert sorted(starts(state)["team/a"]) == ["n0", "spot+1"]


def test_no_running_job_grows_onto_nodes_that_may_come() -> None:
    runs = job("first", running=1, workers=(1, 2), width_changed_at=-500.0, resumed_at=-500.0)
    state = state_of(runs, there=1)
    assert not [one for one in planned(state).decisions if isinstance(one, Resize)]


def test_promise_on_coming_nodes_is_no_promise_twice() -> None:
    jobs = [
        job(name, due_at=1200.0, eligible="pool=spot", submitted_at=at)
        for name, at in (("a", 0.0), ("b", 1.0))
    ]
    state = replace(state_of(*jobs), now=2.0)
    decisions = planned(state).decisions
    assert [one.job for one in decisions if isinstance(one, Promised)] == ["team/a"]
    assert [one.job for one in decisions if isinstance(one, Refuse)] == ["team/b"]


def test_verdict_says_on_which_pool_it_counts_and_how_fast_that_is() -> None:
    state = state_of(job("a", due_at=1200.0, eligible="pool=spot"))
    reasons = [one.reason.text for one in planned(state).decisions]
    assert reasons[0] == (
        "P90 finish 1970-01-01T00:14:00Z, 6m00s before the deadline, on 1 worker, if nodes of pool spot "
        "come within 4m00s; they usually come in 3m10s"
    )
    assert reasons[1].startswith("it starts: its pods wait for nodes of pool spot, which usually")


def test_snapshot_with_coming_nodes_is_read_back_from_the_journal() -> None:
    state = state_of(job("a", eligible="pool=spot"))
    assert load_state(encode_record(state)).nodes == state.nodes


def test_job_that_awaits_its_node_is_expected_as_it_was_promised() -> None:
    state = state_of(job("a", due_at=1200.0, eligible="pool=spot"))
    after = replace(apply_plan(planned(state), state), now=100.0)
    assert after.jobs[0].start_began_at == pytest.approx(240.0)
    assert not [one for one in planned(after).decisions if isinstance(one, Promised)]


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_other_policies_leave_nodes_that_may_come_alone(policy: str) -> None:
    jobs = [job("a", due_at=1200.0), job("b", eligible="pool=spot"), job("c", running=1)]
    state = state_of(*jobs, there=1, spots=2)
    plan = find(policy).policy()(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    named = {name for one in plan.decisions if isinstance(one, Admit) for name in one.nodes}
    assert policy.startswith("qos") or not any("+" in name for name in named)


def kept(*jobs: Job, gpus: tuple[int, ...] = (1, 1)) -> dict[str, str]:
    return dict(find_kept_nodes(cluster(gpus=gpus, jobs=jobs)))


def waits(name: str, start_at: float, due_at: float = 3600.0, width: int = 1) -> Job:
    """A promised job that is planned to start then."""
    row = promised(name, due_at, workers=(width,))
    assert isinstance(row.verdict, Promise)
    runs = ((start_at, 0), (due_at, width)) if start_at else ((due_at, width),)
    return replace(row, verdict=replace(row.verdict, runs=runs))


def test_idle_nodes_are_kept_for_promises_that_start_soon() -> None:
    assert kept(waits("a", 600.0)) == {"n0": "team/a"}
    assert kept(waits("a", 0.0), waits("b", 300.0)) == {"n0": "team/a", "n1": "team/b"}
    assert kept(waits("later", 7200.0, 9000.0), job("unpromised")) == {}
    assert kept(job("runs", running=1), waits("a", 600.0)) == {"n1": "team/a"}
    wide = waits("wide", 600.0, width=2)
    assert kept(job("runs", running=1), wide) == {"n1": "team/wide"}, "the other one is busy"
    assert kept(waits("a", 600.0), gpus=(0,)) == {}
