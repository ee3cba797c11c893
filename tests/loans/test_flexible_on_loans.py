"""Flexible workers on lent nodes, where promises are planned without them."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from laxity_profiler.estimate import Predictor
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.loans.own_nodes import on_own_nodes
from laxity_scheduler.model.cluster import ClusterState, InferenceDemand
from laxity_scheduler.model.decision import (
    Admit,
    Decision,
    Forecasted,
    Preempt,
    Promised,
    Refuse,
    Resize,
    Wait,
)
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.registry import find
from tests.support.builders import MINUTE_EPOCHS, Curve, job, node, promise, promised

PROMISING = ("qos", "elasticflow", "edf_elastic")
WHY = reason("start_on_lent")
NOW, HOUR_S = 1_000.0, 3_600.0
DUE_AT = NOW + 10 * HOUR_S


def cluster(
    *jobs: Job, own: int = 2, lent: int = 4, horizon_s: float = HOUR_S, wanted: float = 0.0
) -> ClusterState:
    """Training node t0, and l0 that is lent; GPUs of the jobs' workers are busy."""
    busy = {name: sum(row.nodes.count(name) for row in jobs) for name in ("t0", "l0")}
    nodes = (
        node("t0", own, free_gpus=own - busy["t0"]),
        node("l0", lent, free_gpus=lent - busy["l0"], pool="loaned"),
    )
    demand = InferenceDemand(wanted, horizon_at=NOW + horizon_s, reclaim_by=NOW + 600.0)
    return ClusterState(NOW, nodes, jobs, inference=demand)


def at_home(*, lent: int = 0, epochs: int = 100, **fields: Any) -> Job:
    """A promised job with two workers on t0, and flexible ones on l0."""
    given = {"workers": (2, 4, 6), "running": 2 + lent, "nodes": ("t0",) * 2 + ("l0",) * lent}
    return promised("due", DUE_AT, epochs=epochs, **(given | {"epoch_started_at": NOW} | fields))


def decide(
    state: ClusterState, name: str = "qos", predictor: Curve = MINUTE_EPOCHS
) -> tuple[Decision, ...]:
    plan: Plan = policy_of(name)(state, predictor)
    check_plan(plan, state)
    assert "?" not in " ".join(decision.reason.text for decision in plan.decisions)
    return plan.decisions


def policy_of(name: str) -> Policy:
    return with_follow_ups(find(name).policy())


def acts(decisions: tuple[Decision, ...]) -> list[tuple[Any, ...]]:
    """Starts, stops and widths: kind, job, workers or when, code."""
    rows: list[tuple[Any, ...]] = []
    for decision in decisions:
        match decision:
            case Admit(job=name, workers=workers) | Resize(job=name, workers=workers):
                rows.append((type(decision).__name__, name, workers, decision.reason.code))
            case Preempt(job=name, at=at):
                rows.append(("Preempt", name, at, decision.reason.code))
            case _:
                pass
    return rows


@pytest.mark.parametrize("name", PROMISING)
def test_a_promised_job_widens_onto_lent_nodes_and_its_base_stays_at_home(name: str) -> None:
    decisions = decide(cluster(at_home()), name)
    assert acts(decisions) == [("Resize", "team/due", 6, "grow_on_lent")]
    grown = next(told for told in decisions if isinstance(told, Resize))
    assert grown.nodes == ("t0", "t0", "l0", "l0", "l0", "l0")


@pytest.mark.parametrize("name", PROMISING)
def test_the_same_is_promised_to_others_with_borrowed_workers_as_without(name: str) -> None:
    """Six workers would be done soon enough for the newcomer, two will not."""
    new = job("new", epochs=10, due_at=NOW + 1_450.0, workers=(2,))

    def told(lent: int) -> list[Decision]:
        verdict = promise(NOW + 1_300.0, workers=2)
        holder = at_home(epochs=40, lent=lent, verdict=verdict, deadline_at=NOW + 1_300.0)
        decisions = decide(cluster(holder, new), name)
        return [d for d in decisions if isinstance(d, Promised | Refuse | Forecasted)]

    assert [type(d) for d in told(4)] != [Promised]
    assert told(4) == told(0)


def test_a_promise_that_re_forming_would_endanger_does_not_grow() -> None:
    slow_to_change = Curve(stop_s=400.0)
    tight = at_home(epochs=2 * 590)  # 590 minutes on two workers, of 600
    assert acts(decide(cluster(tight), predictor=slow_to_change)) == []
    assert acts(decide(cluster(tight), predictor=Curve(stop_s=200.0)))


def test_a_loan_too_short_to_pay_for_re_forming_is_not_used() -> None:
    dear = Curve(stop_s=120.0)
    state = cluster(at_home())
    assert acts(decide(state, predictor=dear))
    soon = cluster(at_home(), horizon_s=90.0)
    assert acts(decide(soon, predictor=dear)) == []


@pytest.mark.parametrize(("name", "grows"), [("qos", True), ("elasticflow", False)])
def test_growth_pays_for_what_its_policy_counts_for_a_change_of_width(
    name: str, *, grows: bool
) -> None:
    """Share rules count a start each time: here as long as the loan, so that nothing is gained."""
    state = cluster(at_home(), horizon_s=600.0)
    assert bool(acts(decide(state, name, Curve(start_s=400.0)))) == grows
    assert acts(decide(state, name, Curve(start_s=20.0)))


@pytest.mark.parametrize(("name", "grows"), [("qos", True), ("elasticflow", False)])
def test_a_promise_keeps_the_slack_that_two_changes_of_its_policy_take(
    name: str, *, grows: bool
) -> None:
    tight = at_home(epochs=2 * 590)  # 590 minutes on two workers, of 600
    assert bool(acts(decide(cluster(tight), name, Curve(start_s=400.0)))) == grows
    assert acts(decide(cluster(tight), name, Curve(start_s=200.0)))


def test_borrowed_gpus_go_where_they_save_most() -> None:
    long, short = at_home(epochs=300), replace(at_home(epochs=20), id="team/short")
    state = cluster(replace(long, nodes=("t0", "t0")), replace(short, nodes=("t0", "t0")), own=4)
    assert acts(decide(state)) == [("Resize", "team/due", 6, "grow_on_lent")]


def test_inference_gets_its_gpus_back_and_the_promised_job_only_shrinks() -> None:
    decisions = decide(cluster(at_home(lent=4), wanted=4.0))
    assert acts(decisions) == [("Resize", "team/due", 2, "shrink_off_lent_node")]
    stays = cluster(replace(at_home(lent=4), resize_to=2), wanted=4.0)
    assert acts(decide(stays)) == [], "it was told already, and grows nowhere meanwhile"


@pytest.mark.parametrize("name", PROMISING)
def test_a_job_whose_later_workers_hold_own_nodes_too_gives_these_to_a_promised_one(
    name: str,
) -> None:
    """Where a cluster's scheduler puts which worker nobody can say."""
    mixed = ("t0", "t0", "t0", "l0", "l0", "t0")
    wide = job(
        "wide", epochs=1_000, workers=(2, 4, 6), running=6, nodes=mixed, epoch_started_at=NOW
    )
    due = promised("due", DUE_AT, epochs=10, workers=(1,))
    rows = acts(decide(cluster(wide, due, own=4), name))
    assert [(kind, who) for kind, who, *_ in rows] in (
        [("Resize", "team/wide")],
        [("Preempt", "team/wide")],
    )


def test_a_job_with_room_at_home_leaves_its_lent_nodes_first() -> None:
    borrowing = at_home(lent=2)
    assert acts(decide(cluster(borrowing, own=8))) == [("Resize", "team/due", 2, "shrink_to_grow")]
    assert acts(decide(cluster(replace(borrowing, resize_to=2), own=8))) == []


def test_a_job_on_lent_nodes_that_gets_a_deadline_moves_to_nodes_that_stay() -> None:
    asks = job("asks", due_at=DUE_AT, workers=(2,), running=2, nodes=("l0", "l0"), asked=True)
    decisions = decide(cluster(asks))
    assert [type(told) for told in decisions if isinstance(told, Promised)] == [Promised]
    assert acts(decisions) == [("Preempt", "team/asks", "epoch", "move_off_lent_nodes")]
    told = replace(asks, asked=False, stop_requested_at=NOW - 1.0)
    assert acts(decide(cluster(told))) == []


def test_a_job_on_lent_nodes_whose_new_deadline_cannot_be_promised_goes_on_there() -> None:
    asks = job("asks", due_at=NOW + 60.0, workers=(2,), running=2, nodes=("l0", "l0"), asked=True)
    decisions = decide(cluster(asks))
    assert [d.reason.code for d in decisions if not isinstance(d, Wait)] == ["forecast_late"]


def test_a_waiting_soft_job_starts_on_lent_nodes_once_it_has_its_forecast() -> None:
    full = at_home(workers=(2,))
    waits = job("soft", due_at=DUE_AT, service_class="soft", workers=(2,))
    assert acts(decide(cluster(full, waits))) == []
    assert acts(decide(cluster(full, replace(waits, asked=False)))) == [
        ("Admit", "team/soft", 2, "start_on_lent")
    ]


def test_a_job_whose_first_worker_came_to_a_lent_node_gives_its_gpus_to_promises_all_the_same() -> (
    None
):
    """As the default scheduler may place the workers of a start."""
    mixed = job("mixed", epochs=500, workers=(2, 4), running=4, nodes=("l0", "t0", "l0", "t0"))
    waits = promised("waits", NOW + 1_200.0, epochs=3, workers=(1,))
    full = replace(mixed, epoch_started_at=NOW)

    def shrink(state: ClusterState, _: Predictor) -> Plan:
        return Plan((Resize("team/mixed", 2, ("l0", "t0"), "epoch", WHY),))

    plan = on_own_nodes(shrink)(cluster(full, waits), MINUTE_EPOCHS)
    assert acts(plan.decisions) == [("Resize", "team/mixed", 2, "start_on_lent")]


@pytest.mark.parametrize("pool", ["inference", "cordoned"])
def test_flexible_workers_leave_a_lent_node_that_is_taken_back_and_the_job_goes_on(
    pool: Any,
) -> None:
    state = cluster(at_home(lent=4))
    taken = replace(state, nodes=(state.nodes[0], replace(state.nodes[1], pool=pool)))
    assert acts(decide(taken)) == [("Resize", "team/due", 2, "shrink_off_closed_node")]
    told = replace(taken, jobs=(replace(taken.jobs[0], resize_to=2),))
    assert acts(decide(told)) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"preemptible": False},
        {"quota": "q"},
        {"pinned": True},
        {"formed": 1},
        {"stop_requested_at": NOW - 1.0},
        {"terminating_workers": 1},
        {"width_changed_at": NOW},
    ],
)
def test_a_job_whose_width_is_not_open_does_not_grow(fields: dict[str, Any]) -> None:
    state = replace(cluster(at_home(**fields)), quotas={"q": 8})
    assert [act for act in acts(decide(state)) if act[0] == "Resize"] == []


def test_without_an_end_of_the_forecast_the_whole_rest_counts() -> None:
    assert acts(decide(cluster(at_home(), horizon_s=inf)))
