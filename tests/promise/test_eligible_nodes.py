"""A job that may use some nodes only: where it starts, who makes room, what it is promised.

Nodes a (n0) and b (n1); the set "big" is one of them unless a test says otherwise. Epochs take a
minute on one worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.model.cluster import ClusterState, NodeSet, Pool
from laxity_scheduler.model.decision import Admit, Forecasted, Preempt, Refuse, Resize, Wait
from laxity_scheduler.model.job import Job, Promise, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import PlanError, check_plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.policies.registry import find
from laxity_scheduler.promising.promise import judge
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised

WHY = reason("order", policy="test")
BIG: Mapping[str, NodeSet] = {
    "big": NodeSet(frozenset({"n1"}), "n0: label gpu is t4, a100 is asked")
}


def state_of(
    gpus: Sequence[int], *jobs: Job, sets: Mapping[str, NodeSet] = BIG, **more: Any
) -> ClusterState:
    return cluster(gpus=gpus, jobs=jobs, sets=sets, **more)


def done(state: ClusterState) -> Plan:
    plan = decide(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    return plan


def starts(state: ClusterState) -> dict[str, tuple[str, ...]]:
    return {one.job: one.nodes for one in done(state).decisions if isinstance(one, Admit)}


def stops(state: ClusterState) -> dict[str, str]:
    return {one.job: one.beneficiary for one in done(state).decisions if isinstance(one, Preempt)}


def told(state: ClusterState, name: str) -> Wait:
    return next(one for one in done(state).decisions if isinstance(one, Wait) and one.job == name)


# placing


def test_a_ledger_places_among_some_nodes_and_counts_for_all() -> None:
    ledger = Ledger(["a", "b", "c"], [1, 4, 2])
    assert ledger.place(2, 1, frozenset("bc")) == ("c", "c"), "the fullest that holds it"
    assert ledger.place(1, 1) == ("a",)
    assert ledger.place(2, 1, frozenset("ac")) is None
    assert ledger.place(3, 1) == ("b", "b", "b")
    assert ledger.slots(1, frozenset("bc")) == 1
    assert ledger.place(1, 1, frozenset("bc")) == ("b",)
    ledger.give(("c",), 1)
    assert ledger.place(1, 1, frozenset("bc")) == ("c",)
    assert ledger.total_free == 0
    ledger.give(("c",), 1)
    assert ledger.copy().place(1, 1, frozenset("b")) is None


def test_a_job_starts_where_it_may_and_not_where_it_would_fit_better() -> None:
    assert starts(state_of([1, 4], job("a", eligible="big"))) == {"team/a": ("n1",)}


def test_who_may_go_anywhere_leaves_the_nodes_that_others_depend_on() -> None:
    state = state_of([4, 1], job("any"), job("tied", eligible="big", submitted_at=1.0), now=2.0)
    assert starts(state) == {"team/any": ("n0",), "team/tied": ("n1",)}


def test_a_plan_that_names_a_node_the_job_may_not_use_is_refused() -> None:
    state = state_of([4, 4], job("a", eligible="big", workers=(1, 2)))
    with pytest.raises(PlanError, match=r"it may not use n0: big allows n1"):
        check_plan(Plan((Admit("team/a", 1, ("n0",), WHY),)), state)
    check_plan(Plan((Admit("team/a", 1, ("n1",), WHY),)), state)
    runs = job("a", eligible="big", workers=(1, 2), running=1, nodes=("n1",))
    with pytest.raises(PlanError, match="it may not use n0"):
        check_plan(Plan((Resize("team/a", 2, ("n1", "n0"), "now", WHY),)), state_of([4, 4], runs))


def test_a_set_that_the_snapshot_does_not_know_has_no_nodes() -> None:
    state = state_of([4, 4], job("a", eligible="gone"))
    assert not starts(state)
    with pytest.raises(PlanError, match="gone allows no node"):
        check_plan(Plan((Admit("team/a", 1, ("n0",), WHY),)), state)


def test_idle_gpus_go_to_a_running_job_on_its_own_nodes_only() -> None:
    """One waits for the full node; what is free on the other one is no good to it."""
    jobs = [
        job("wide", workers=(1, 2), running=1, width_changed_at=-500.0, resumed_at=-500.0),
        job("full", running=1, nodes=("n1",)),
        job("tied", eligible="big"),
    ]
    grown = [one for one in done(state_of([2, 1], *jobs)).decisions if isinstance(one, Resize)]
    assert [(one.job, one.nodes) for one in grown] == [("team/wide", ("n0", "n0"))]


# making room


def test_nobody_is_stopped_on_nodes_that_the_waiting_job_cannot_use() -> None:
    jobs = [
        job("be0", running=1, nodes=("n0",), epochs=3),
        job("be1", running=1, nodes=("n1",), epochs=30),
        promised("tied", 700.0, eligible="big"),
    ]
    assert stops(state_of([1, 1], *jobs)) == {"team/be1": "team/tied"}


def test_free_gpus_that_it_cannot_use_do_not_keep_it_waiting() -> None:
    jobs = [job("be1", running=1, nodes=("n1",)), promised("tied", 650.0, eligible="big")]
    assert stops(state_of([4, 1], *jobs)) == {"team/be1": "team/tied"}


def test_what_leaves_on_other_nodes_is_not_on_its_way_to_it() -> None:
    leaving = job("v", stop_requested_at=0.0, stop_for="", running=1, nodes=("n0",))
    jobs = [leaving, job("be1", running=1, nodes=("n1",)), promised("tied", 650.0, eligible="big")]
    assert stops(state_of([1, 1], *jobs)) == {"team/be1": "team/tied"}


# promising


def verdict(state: ClusterState, newcomer: Job) -> Promise | Refusal:
    found = judge(state, newcomer, MINUTE_EPOCHS)
    assert isinstance(found, Promise | Refusal)
    return found


def test_a_promise_does_not_rest_on_gpus_of_the_wrong_kind() -> None:
    held = promised("held", 700.0, eligible="big", running=1, nodes=("n1",))
    state = state_of([8, 1], held)
    new = job("new", due_at=900.0, eligible="big")
    found = verdict(state, new)
    assert isinstance(found, Refusal)
    assert found.reason.code == "capacity_promised_to_others"
    assert found.reason.fact("free_gpus") == 0
    assert [offer.kind for offer in found.offers] == ["deadline"]
    assert isinstance(verdict(state, replace(new, deadline_at=1300.0)), Promise), "behind it"
    assert isinstance(verdict(state, replace(new, eligible="")), Promise)


def test_an_offered_deadline_counts_the_nodes_it_may_use() -> None:
    held = promised("held", 600.0, eligible="big", running=1, nodes=("n1",))
    found = verdict(state_of([8, 1], held), job("new", due_at=700.0, eligible="big"))
    assert isinstance(found, Refusal)
    assert found.offers[0].deadline_at > 1200.0


def test_a_promise_of_who_may_go_anywhere_does_not_eat_what_others_depend_on() -> None:
    """Four GPUs of which one is big, promised to a tied job that waits: three are left."""
    state = state_of([3, 1], promised("tied", 700.0, eligible="big"))
    promises: list[Job] = []
    for number in range(4):
        new = job(f"any{number}", due_at=650.0)
        now = replace(state, jobs=(*state.jobs, *promises))
        found = verdict(now, new)
        assert isinstance(found, Promise) is (number < 3)
        promises.append(promised(f"any{number}", 650.0))


def test_running_workers_count_where_they_are() -> None:
    """It could be anywhere, but it sits on the one big GPU to the end."""
    sits = promised("sits", 700.0, running=1, nodes=("n1",))
    found = verdict(state_of([4, 1], sits), job("new", due_at=650.0, eligible="big"))
    assert isinstance(found, Refusal)
    moved = replace(sits, nodes=("n0",))
    found = verdict(state_of([4, 1], moved), job("new", due_at=650.0, eligible="big"))
    assert isinstance(found, Promise)


def test_promises_on_overlapping_sets_are_counted_together() -> None:
    """Either could have two of the three GPUs, but not both of them."""

    def pair(name: str, eligible: str) -> Job:
        return job(name, due_at=320.0, eligible=eligible, workers=(2,))

    pairs = {"ab": "n0 n1", "bc": "n1 n2", "ac": "n0 n2"}
    sets = {name: NodeSet(frozenset(nodes.split())) for name, nodes in pairs.items()}
    state = state_of([1, 1, 1, 4], promised("one", 320.0, eligible="ab", workers=(2,)), sets=sets)
    assert isinstance(verdict(state, pair("two", "bc")), Refusal), "three GPUs for four"
    assert isinstance(
        verdict(state, replace(pair("two", "bc"), widths=(1,), deadline_at=620.0)), Promise
    )


def test_one_that_starts_now_does_not_take_what_a_later_promise_needs() -> None:
    """The tied ones are planned one after the other on the one big GPU, up to their deadlines."""
    jobs = [
        promised("tied1", 650.0, eligible="big"),
        promised("tied2", 1_300.0, eligible="big"),
        promised("any", 1_300.0),
    ]
    assert starts(state_of([1, 1], *jobs)) == {"team/tied1": ("n1",), "team/any": ("n0",)}
    held = job("full", running=1, nodes=("n0",), preemptible=False, epochs=9)
    assert starts(state_of([1, 1], held, *jobs)) == {"team/tied1": ("n1",)}


# what can never be


def test_a_hard_job_that_no_node_does_for_is_told_which_label_shuts_it_out() -> None:
    none = {"gpu=h100": NodeSet(frozenset(), "n0: label gpu is t4, h100 is asked")}
    state = state_of([4, 2], job("a", due_at=9e3, eligible="gpu=h100"), sets=none)
    refusal = next(one for one in done(state).decisions if isinstance(one, Refuse))
    assert refusal.reason.code == "no_eligible_node"
    assert refusal.reason.text == (
        "no node is eligible: the pods ask for gpu=h100; nodes with GPUs: n0 (4 GPUs), "
        "n1 (2 GPUs); n0: label gpu is t4, h100 is asked"
    )


def test_a_worker_too_large_for_the_nodes_it_may_use_is_refused() -> None:
    state = state_of([8, 2], job("a", due_at=9e3, eligible="big", gpus_per_worker=4))
    refusal = next(one for one in done(state).decisions if isinstance(one, Refuse))
    assert refusal.reason.code == "does_not_fit_eligible_nodes"
    assert "0 fit on the nodes it may use, n1 (2 GPUs)" in refusal.reason.text


@pytest.mark.parametrize(
    "policy", [decide, find("fifo").policy(packing="strict")], ids=["qos", "fifo, strict"]
)
def test_a_job_that_can_use_nothing_waits_without_hope_and_is_in_nobodys_way(policy: Any) -> None:
    none = {"gpu=h100": NodeSet(frozenset(), "n0: label gpu is t4, h100 is asked")}
    jobs = [
        job("never", eligible="gpu=h100"),
        job("next", workers=(1, 2), submitted_at=1.0, queued_at=1.0),
    ]
    state = state_of([2], *jobs, sets=none, now=90_000.0)
    plan = policy(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    waits = next(one for one in plan.decisions if isinstance(one, Wait))
    assert (waits.job, waits.reason.code) == ("team/never", "no_eligible_node")
    assert waits.expected_start_at == float("inf")
    assert [one.workers for one in plan.decisions if isinstance(one, Admit)] == [2]


def test_a_promise_whose_nodes_are_labelled_away_is_said_to_be_in_danger() -> None:
    none = {"big": NodeSet(frozenset(), "n0: label gpu is t4, a100 is asked")}
    state = state_of([4], promised("tied", 700.0, eligible="big"), sets=none)
    codes = [one.reason.code for one in done(state).decisions if one.job == "team/tied"]  # type: ignore[union-attr]
    assert codes == ["promise_in_danger", "no_eligible_node"]


def test_a_waiting_job_is_told_who_holds_the_nodes_that_it_may_use() -> None:
    jobs = [
        job("be0", running=1, nodes=("n0",), epochs=1),
        job("be1", running=1, nodes=("n1",), epochs=20),
        job("tied", eligible="big"),
    ]
    said = told(state_of([1, 1], *jobs), "team/tied")
    assert said.held_by == ("team/be1",)
    assert said.expected_start_at == 1200.0
    plan = done(state_of([1, 1], *jobs))
    forecasts = {one.job: one.forecast for one in plan.decisions if isinstance(one, Forecasted)}
    assert forecasts["team/tied"].p90_at == 1800.0


def test_a_job_too_large_for_the_empty_cluster_is_not_told_to_wait_for_free_gpus() -> None:
    large = job("large", gpus_per_worker=8)
    wait = told(cluster(gpus=(4, 4), jobs=(large, job("small"))), large.id)
    assert wait.reason.code == "does_not_fit_cluster"
    assert wait.reason.text.endswith("0 fit on the empty cluster")


@pytest.mark.parametrize(
    ("pool", "why"),
    [("cordoned", "cordoned"), ("inference", "kept for inference by label laxity.dev/pool")],
)
def test_a_job_whose_only_node_takes_no_training_is_told_its_name(pool: Pool, why: str) -> None:
    state = state_of([4, 4], job("a", eligible="big"))
    nodes = (state.nodes[0], replace(state.nodes[1], pool=pool))
    text = told(replace(state, nodes=nodes), "team/a").reason.text
    assert f"n1: {why}; n0: label gpu is t4, a100 is asked" in text
