"""Loans around a policy: idle nodes are lent, lent ones go back, few are stopped for it."""

from dataclasses import replace
from math import inf
from typing import Any

from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState, InferenceDemand, Node, NodeSet
from laxity_scheduler.model.decision import Admit, Loan, Preempt, Reclaim, Resize, Wait
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import apply_plan, check_plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.store.differences import apply_difference, snapshot_difference
from tests.support.builders import MINUTE_EPOCHS, Curve, job, node, promised

NOW = 1_000.0
ARYL: Policy = with_follow_ups(find("aryl").policy())


def fleet(
    *,
    training: int = 1,
    lent: int = 0,
    inference: int = 0,
    jobs: tuple[Job, ...] = (),
    demand: InferenceDemand | None = None,
    **fields: Any,
) -> ClusterState:
    """Nodes t0.., l0.. and i0.. of 8 GPUs; those of the jobs' workers are busy."""
    pools = {"t": ("training", training), "l": ("loaned", lent), "i": ("inference", inference)}
    names = [f"{letter}{number}" for letter, (_, count) in pools.items() for number in range(count)]
    busy = {
        name: sum(one.nodes.count(name) * one.gpus_per_worker for one in jobs) for name in names
    }
    nodes: tuple[Node, ...] = tuple(
        node(name, 8, free_gpus=8 - busy[name], pool=pools[name[0]][0]) for name in names
    )
    return ClusterState(NOW, nodes, jobs, inference=demand, **fields)


def wants(gpus: float, *, by: float = inf) -> InferenceDemand:
    return InferenceDemand(gpus, horizon_at=NOW + 1_800.0, reclaim_by=by)


def decide(state: ClusterState, predictor: Curve = MINUTE_EPOCHS) -> Plan:
    plan = ARYL(state, predictor)
    check_plan(plan, state)
    assert "?" not in " ".join(decision.reason.text for decision in plan.decisions)
    return plan


def of_kind(plan: Plan, kind: type) -> list[Any]:
    return [decision for decision in plan.decisions if isinstance(decision, kind)]


def test_idle_inference_nodes_are_lent_as_far_as_the_forecast_allows() -> None:
    demand = replace(wants(3.0), forecast_gpus=9.0)
    plan = decide(fleet(inference=4, demand=demand))
    assert [loan.nodes for loan in of_kind(plan, Loan)] == [("i0", "i1")]
    assert "inference needs at most 9" in plan.decisions[0].reason.text


def test_a_node_that_inference_uses_is_not_lent() -> None:
    state = fleet(inference=2, demand=wants(0.0))
    busy = replace(
        state, nodes=(*state.nodes[:1], replace(state.nodes[1], free_gpus=7), state.nodes[2])
    )
    assert of_kind(decide(busy), Loan)[0].nodes == ("i1",)


def test_nothing_is_lent_without_a_demand_or_once_its_forecast_has_run_out() -> None:
    assert decide(fleet(inference=2)).decisions == ()
    late = replace(wants(0.0), horizon_at=NOW - 1.0)
    assert decide(fleet(inference=2, demand=late)).decisions == ()


def test_demand_larger_than_the_fleet_takes_all_lent_nodes_back() -> None:
    plan = decide(fleet(lent=2, demand=wants(1e9)))
    assert of_kind(plan, Reclaim)[0].nodes == ("l0", "l1")


def test_flexible_workers_leave_a_node_and_nobody_is_stopped() -> None:
    nodes = ("t0", "t0", "l0", "l0")
    wide = job("wide", workers=(2, 4), running=4, nodes=nodes, epoch_started_at=NOW)
    base = job("base", workers=(4,), running=4, nodes=("l1",) * 4, epoch_started_at=NOW)
    plan = decide(fleet(lent=2, jobs=(base, wide), demand=wants(8.0, by=NOW + 900.0)))
    resize = of_kind(plan, Resize)[0]
    assert (resize.job, resize.workers, resize.at) == ("team/wide", 2, "epoch")
    assert not of_kind(plan, Preempt)
    assert plan.wake_at <= NOW + 900.0


def test_base_workers_stop_at_the_end_of_the_epoch_if_that_is_soon_enough() -> None:
    base = job("base", workers=(4,), running=4, nodes=("l0",) * 4, epoch_started_at=NOW - 30.0)
    soon = decide(fleet(lent=1, jobs=(base,), demand=wants(8.0, by=NOW + 900.0)))
    assert [(stop.job, stop.at) for stop in of_kind(soon, Preempt)] == [("team/base", "epoch")]
    long = Curve(epoch_s=40_000.0)
    late = decide(fleet(lent=1, jobs=(base,), demand=wants(8.0, by=NOW + 900.0)), long)
    assert [(stop.job, stop.at) for stop in of_kind(late, Preempt)] == [("team/base", "now")]


def test_reclaim_by_a_moment_in_the_past_stops_now_and_asks_again_for_nothing() -> None:
    base = job("base", workers=(4,), running=4, nodes=("l0",) * 4)
    state = fleet(lent=1, jobs=(base,), demand=wants(8.0, by=NOW - 50.0))
    plan = decide(state)
    assert [stop.at for stop in of_kind(plan, Preempt)] == ["now"]
    assert not of_kind(decide(apply_plan(plan, state)), Preempt)


def test_a_job_that_waits_for_its_epochs_end_is_stopped_when_time_is_up() -> None:
    asked: dict[str, Any] = {"stop_requested_at": NOW - 60.0, "epoch_started_at": NOW - 30.0}
    base = job("base", workers=(4,), running=4, nodes=("l0",) * 4, **asked)
    state = fleet(lent=1, jobs=(base,), demand=wants(8.0, by=NOW))
    assert [stop.at for stop in of_kind(decide(state), Preempt)] == ["now"]
    waiting = fleet(lent=1, jobs=(base,), demand=wants(8.0, by=NOW + 900.0))
    assert not of_kind(decide(waiting), Preempt)


def test_no_worker_starts_on_a_node_that_goes_back() -> None:
    queued = job("queued", workers=(8,))
    base = job("base", workers=(8,), running=8, nodes=("t0",) * 8)
    state = fleet(lent=1, jobs=(base, queued), demand=wants(8.0))
    plan = decide(state)
    assert not of_kind(plan, Admit)
    assert of_kind(plan, Reclaim)[0].nodes == ("l0",)
    assert of_kind(decide(replace(state, inference=wants(0.0))), Admit)[0].nodes == ("l0",) * 8


def test_a_node_is_handed_back_only_once_its_pods_are_gone() -> None:
    leaving = job("leaving", workers=(4,), terminating_workers=4)
    state = fleet(lent=1, jobs=(leaving,), demand=wants(8.0))
    busy = replace(state, nodes=(state.nodes[0], replace(state.nodes[1], free_gpus=4)))
    assert not of_kind(decide(busy), Reclaim)
    assert of_kind(decide(state), Reclaim)


def test_a_pinned_job_keeps_its_lent_node_and_another_goes_back() -> None:
    pinned = job("pinned", workers=(1,), running=1, nodes=("l0",), pinned=True)
    base = job("base", workers=(4,), running=4, nodes=("l1",) * 4)
    plan = decide(fleet(lent=2, jobs=(base, pinned), demand=wants(8.0)))
    assert [stop.job for stop in of_kind(plan, Preempt)] == ["team/base"]


def test_a_lent_node_that_was_cordoned_or_deleted_is_not_asked_for_again() -> None:
    state = fleet(lent=2, demand=wants(16.0))
    cordoned = replace(state.nodes[1], pool="cordoned", free_gpus=0)
    plan = decide(replace(state, nodes=(state.nodes[0], cordoned, state.nodes[2])))
    assert of_kind(plan, Reclaim)[0].nodes == ("l1",)
    assert not of_kind(decide(replace(state, nodes=state.nodes[:1])), Reclaim)


def test_base_workers_go_to_training_nodes_and_flexible_ones_to_lent_nodes() -> None:
    plan = decide(fleet(lent=1, jobs=(job("a", workers=(2, 6)),), demand=wants(0.0)))
    assert of_kind(plan, Admit)[0].nodes == ("t0", "t0", "l0", "l0", "l0", "l0")


def test_base_and_flexible_workers_keep_apart_on_lent_nodes() -> None:
    full = job("full", workers=(8,), running=8, nodes=("t0",) * 8)
    based = job("based", workers=(2,), running=2, nodes=("l0", "l0"))
    wide = job("wide", workers=(1, 4))
    jobs = (based, full, wide)
    plan = decide(fleet(lent=2, jobs=jobs, demand=wants(0.0)))
    assert of_kind(plan, Admit)[0].nodes == ("l0", "l1", "l1", "l1")


def test_the_demand_is_in_the_journal() -> None:
    old = fleet(lent=1)
    new = replace(old, inference=wants(8.0, by=NOW + 5.0))
    assert apply_difference(old, snapshot_difference(old, new)) == new
    assert apply_difference(new, snapshot_difference(new, old)) == old


def test_base_workers_leave_training_nodes_to_jobs_that_wait_for_these() -> None:
    sets = {"own": NodeSet(frozenset({"t0"}), "the others are too small")}
    full = job("full", workers=(4,), running=4, nodes=("t0",) * 4)
    waits = job("waits", epochs=50, workers=(6,), eligible="own")
    jobs = (job("any", epochs=5, workers=(2,)), full, waits)
    plan = decide(fleet(lent=1, jobs=jobs, demand=wants(0.0), sets=sets))
    assert of_kind(plan, Admit)[0].nodes == ("l0", "l0")
    alone = decide(fleet(lent=1, jobs=jobs[:2], demand=wants(0.0), sets=sets))
    assert of_kind(alone, Admit)[0].nodes == ("t0", "t0")


def test_a_job_does_not_wait_for_gpus_that_inference_keeps() -> None:
    """Idle as they are: what it waits for, and until when, is said of training nodes alone."""
    runs = promised("runs", NOW + 36_000.0, epochs=10, running=8, workers=(8,), nodes=("t0",) * 8)
    waits = job("waits", workers=(8,), epochs=5)
    state = fleet(inference=1, jobs=(runs, waits), demand=wants(8.0))
    assert (state.total_gpus, state.free_gpus) == (8, 0)
    plan = with_follow_ups(find("qos").policy())(state, MINUTE_EPOCHS)
    (wait,) = of_kind(plan, Wait)
    assert (wait.job, wait.reason.code, wait.held_by) == (
        "team/waits",
        "no_free_gpus",
        ("team/runs",),
    )
    assert wait.expected_start_at > NOW + 60.0
