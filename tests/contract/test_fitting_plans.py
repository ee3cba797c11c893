"""Plans fit the snapshot that they were made on; of one that does not, all else is carried out."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState, Hold
from laxity_scheduler.model.decision import Admit, Continue, Decision, Preempt, Promised, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.registry import find
from tests.contract.test_policies import (
    MILP,
    POLICIES,
    QUICK,
    asked,
    cordoned_by_seed,
    every_policy,
    lending_of_seed,
    restricted_by_seed,
)
from tests.loans.test_lending import NOW, fleet, wants
from tests.support.builders import MINUTE_EPOCHS, cluster, job, node, promised
from tests.support.plans import started_jobs
from tests.support.random_states import Case, case, held

WHY = reason("order", policy="test")
KINDS: tuple[Callable[[Case], Case], ...] = (
    lambda plain: plain,
    restricted_by_seed,
    cordoned_by_seed,
    lending_of_seed,
)
LATER = NOW + 600.0


def fits(name: str, seeds: Iterable[int]) -> None:
    """Whatever a policy decides: nothing of it is dropped."""
    policy = with_follow_ups(asked(name))
    for seed in seeds:
        drawn = held(KINDS[seed % len(KINDS)](case(seed)))
        plan = policy(drawn.state, drawn.predictor)
        assert plan.dropped == (), f"seed {seed}: {plan.dropped[0]}"


@every_policy
def test_a_plan_fits_where_gpus_are_held(name: str) -> None:
    fits(name, range(QUICK))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(POLICIES.keys() - set(MILP)))
def test_a_plan_fits_in_a_thousand_states(name: str) -> None:
    fits(name, range(QUICK, 1_000))


@pytest.mark.soak
@every_policy
def test_a_plan_fits_in_a_hundred_thousand_states(name: str) -> None:
    fits(name, range(1_000 if name in MILP else 100_000))


def test_what_is_held_for_a_wider_restart_is_given_to_nobody_else() -> None:
    """`late` needs two workers and has four GPUs of n1; it takes them when its epoch has ended."""
    late = promised("late", 400.0, epochs=10, workers=(1, 2, 4), running=1)
    busy = job("busy", running=1, preemptible=False)
    state = cluster(
        gpus=[2, 4],
        jobs=[late, busy, job("other", workers=(2,))],
        holds=[Hold("team/late", "n1", 4, 600.0)],
    )
    plan = with_follow_ups(find("qos").policy())(state, MINUTE_EPOCHS)
    stops = [d.reason.code for d in plan.decisions if isinstance(d, Preempt)]
    assert (stops, started_jobs(plan), plan.dropped) == (["restart_wider"], [], ())


def on_a_closed_node() -> ClusterState:
    """`leaves` is late, and could grow on n1, but is asked to leave n0 first."""
    leaves = promised("leaves", 200.0, workers=(2, 3), running=2, nodes=("n0", "n1"))
    state = cluster(
        gpus=[1, 8],
        jobs=[leaves, promised("other", 900.0, workers=(3,))],
        holds=[Hold("team/leaves", "n1", 7, 600.0)],
    )
    return replace(state, nodes=(node("n0", 1, free_gpus=0, pool="cordoned"), state.nodes[1]))


def on_nodes_that_go_back() -> ClusterState:
    """`leaves` shrinks to its worker on t0 at once; what is held for it there is not free yet."""
    leaves = job("leaves", workers=(1, 2), running=2, nodes=("t0", "l0"))
    busy = job("busy", running=3, workers=(3,), nodes=("t0",) * 3)
    jobs = (leaves, busy, job("other", workers=(2,)))
    state = fleet(training=1, lent=1, jobs=jobs, demand=wants(8.0, by=NOW))
    return replace(state, holds=(Hold("team/leaves", "t0", 4, LATER),))


def on_lent_nodes_alone() -> ClusterState:
    """`moves` starts on t0 once it has left l0."""
    moves = promised("moves", NOW + 4_000.0, running=1, nodes=("l0",))
    busy = job("busy", running=4, workers=(4,), nodes=("t0",) * 4)
    full = job("full", running=7, workers=(7,), nodes=("l0",) * 7)
    jobs = (moves, busy, full, job("other", workers=(3,)))
    state = fleet(training=1, lent=1, jobs=jobs, demand=wants(0.0))
    return replace(state, holds=(Hold("team/moves", "t0", 4, LATER),))


def asked_to_stop_for_nobody() -> ClusterState:
    """`stays` is late, and could grow, but is first told that it need not stop."""
    stays = promised("stays", 400.0, epochs=10, workers=(1, 2), running=1)
    stays = replace(stays, stop_requested_at=-1.0, stop_for="team/gone")
    holds = [Hold("team/stays", "n0", 4, 600.0)]
    return cluster(gpus=5, jobs=[stays, job("other", workers=(3,))], holds=holds)


@pytest.mark.parametrize(
    ("policy", "state", "does"),
    [
        pytest.param("qos", on_a_closed_node(), Preempt, id="it leaves a closed node"),
        pytest.param("optimus", on_nodes_that_go_back(), Resize, id="it leaves a lent node"),
        pytest.param("qos", on_lent_nodes_alone(), Preempt, id="it moves off lent nodes"),
        pytest.param("qos", asked_to_stop_for_nobody(), Continue, id="its stop is taken back"),
    ],
)
def test_what_is_held_for_a_job_that_does_something_else_is_given_to_nobody(
    policy: str, state: ClusterState, does: type
) -> None:
    plan = with_follow_ups(find(policy).policy())(state, MINUTE_EPOCHS)
    assert [d for d in plan.decisions if isinstance(d, does)]
    assert started_jobs(plan) == []
    assert plan.dropped == ()


def starts(*names: str, node_name: str = "n0") -> list[Decision]:
    return [Admit(f"team/{name}", 1, (node_name,), WHY) for name in names]


def fitted(decisions: list[Decision], *jobs: Job, holds: tuple[Hold, ...] = ()) -> Plan:
    state = cluster(gpus=2, jobs=jobs, holds=holds)
    plan = with_follow_ups(lambda *_: Plan(tuple(decisions)))(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    assert plan.wake_at <= 10.0, "what was dropped is looked at again"
    return plan


def test_a_decision_that_does_not_fit_is_dropped_by_name_and_all_others_stand() -> None:
    plan = fitted(starts("a", "b", "c"), job("a"), job("b"), job("c"))
    assert started_jobs(plan) == ["team/a", "team/b"]
    assert list(map(str, plan.dropped)) == ["Admit of job team/c: node n0 has 0 free GPUs, 1 asked"]
    assert [misfit.about for misfit in plan.dropped] == ["team/c"]


def test_a_start_on_several_nodes_that_is_dropped_takes_nothing() -> None:
    wide = Admit("team/wide", 2, ("n0", "nowhere"), WHY)
    plan = fitted([wide, *starts("a", "b")], job("wide", workers=(2,)), job("a"), job("b"))
    assert started_jobs(plan) == ["team/a", "team/b"]


def test_who_counted_on_the_hold_of_a_dropped_start_is_dropped_as_well() -> None:
    plan = fitted(
        [Admit("team/a", 3, ("n0",) * 3, WHY), *starts("b")],
        job("a"),
        job("b"),
        holds=(Hold("team/a", "n0", 2, 600.0),),
    )
    assert [misfit.about for misfit in plan.dropped] == ["team/a", "team/b"]


def test_a_verdict_stands_though_the_start_beside_it_is_dropped() -> None:
    verdict = promised("a", 900.0).verdict
    told: Decision = Promised("team/a", verdict, WHY)  # type: ignore[arg-type]
    plan = fitted([told, *starts("a", node_name="nowhere")], job("a", due_at=900.0))
    assert plan.decisions == (told,)
