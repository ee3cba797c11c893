"""One exam for all policies, live and simulated."""

from random import Random

import pytest

from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.loans.lending import with_loans
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies import qos
from laxity_scheduler.policies.registry import REGISTRY, find
from tests.contract.policy_exam import examined
from tests.support.builders import MINUTE_EPOCHS, cluster, job
from tests.support.random_states import (
    Case,
    case,
    cases,
    cordoned,
    drawn,
    lending,
    restricted,
    restricted_cases,
)

LISTED: dict[str, Policy] = {name: find(name).policy() for name in REGISTRY}
OTHERS: dict[str, Policy] = {
    "fifo, strict": find("fifo").policy(packing="strict"),
    "edf, strict": find("edf").policy(packing="strict"),
    "elasticflow, no promises": find("elasticflow").policy(admission="none"),
    "edf, greedy promises": find("edf").policy(admission="greedy"),
    "chronus, greedy promises": find("chronus").policy(admission="greedy"),
    "qos, greedy promises": find("qos").policy(admission="greedy"),
    "qos, no promises": find("qos").policy(admission="none"),
    "qos, impatient": qos.QosPolicy(patience=10.0, cooldown_epochs=0.0, least_run_s=0.0),
    "qos, with follow-ups": with_follow_ups(qos.decide),
}
POLICIES = LISTED | OTHERS
QUICK, STATES = 100, 400  # of the quick exam, and with the slow one; the long one has 100,000
MILP = ("chronus", "chronus, greedy promises")  # tens of milliseconds a state
LENDING = ("aryl", "chronus", "drf", "fifo", "elasticflow", "pickyman", "qos")
FEWER = dict.fromkeys(OTHERS, 200) | dict.fromkeys(MILP, 100)
FOUND = (
    pytest.param("qos", 4_169, id="widened and at once stopped for another"),
    pytest.param("qos, no promises", 311, id="widened and at once stopped for a promise"),
    pytest.param("qos", 17_114, id="asked for some at its epoch's end, then for all at once"),
    pytest.param("qos", 42_380, id="nothing left to train, and no start in sight"),
    pytest.param("qos, with follow-ups", 1_730, id="narrowed to what fits and at once stopped"),
    pytest.param("qos, with follow-ups", 14_707, id="held where the one it is for cannot grow"),
    pytest.param("qos", 1_479, id="stopped for one whom enough is on its way to"),
    pytest.param("qos, greedy promises", 996, id="a new promise later than its deadline by a slot"),
)
every_policy = pytest.mark.parametrize("name", sorted(POLICIES))


def exams(part: int = 1) -> pytest.MarkDecorator:
    """The quick exam of each policy, and the slow one on the states after those of the quick one."""
    rows = []
    for name in sorted(POLICIES):
        quick, last = (FEWER.get(name, count) // part for count in (QUICK, STATES))
        quick = min(QUICK, quick)
        rows.append(pytest.param(name, slice(quick), id=f"{name}-quick"))
        if last > quick:
            states = slice(quick, last)
            rows.append(pytest.param(name, states, id=f"{name}-slow", marks=pytest.mark.slow))
    return pytest.mark.parametrize(("name", "states"), rows)


def asked(name: str) -> Policy:
    return POLICIES[name]


def restricted_by_seed(one: Case) -> Case:
    return restricted(one, Random(f"sets of {one.seed}"))


def cordoned_by_seed(one: Case) -> Case:
    return cordoned(one, Random(f"cordons of {one.seed}"))


def lending_of_seed(one: Case) -> Case:
    return lending(one, Random(f"loans of {one.seed}"))


@pytest.mark.timeout(600)  # a thousand states on a machine that is busy with other things
@exams()
def test_a_policy_passes_the_exam(name: str, states: slice) -> None:
    examined(asked(name), cases(STATES)[states])


@pytest.mark.timeout(600)
@exams(part=3)
def test_a_policy_passes_the_exam_where_jobs_may_use_some_nodes_only(
    name: str, states: slice
) -> None:
    examined(asked(name), restricted_cases(STATES)[states])


@pytest.mark.timeout(600)
@exams(part=5)
def test_a_policy_passes_the_exam_where_nodes_are_cordoned(name: str, states: slice) -> None:
    few = restricted_cases(STATES)[states]
    examined(asked(name), map(cordoned_by_seed, few))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LENDING)
def test_a_policy_passes_the_exam_where_inference_lends_nodes(name: str) -> None:
    few = restricted_cases(STATES)[: FEWER.get(name, STATES) // 5]
    examined(with_loans(asked(name)), map(lending_of_seed, few))


@pytest.mark.soak
@every_policy
def test_a_policy_passes_a_long_exam(name: str) -> None:
    many = 1_000 if name in MILP else 100_000
    examined(asked(name), drawn(many))
    examined(asked(name), map(restricted_by_seed, drawn(many)))
    examined(asked(name), map(cordoned_by_seed, map(restricted_by_seed, drawn(many // 5))))


@pytest.mark.soak
@pytest.mark.parametrize("name", LENDING)
def test_a_policy_passes_a_long_exam_where_inference_lends_nodes(name: str) -> None:
    many = 1_000 if name in MILP else 20_000
    states = map(lending_of_seed, map(restricted_by_seed, drawn(many)))
    examined(with_loans(asked(name)), states)


@pytest.mark.parametrize(("name", "seed"), FOUND)
def test_what_a_long_exam_found_is_mended(name: str, seed: int) -> None:
    examined(asked(name), [case(seed)])


@pytest.mark.parametrize("name", sorted(LISTED))
def test_an_empty_cluster_gives_an_empty_plan(name: str) -> None:
    plan = asked(name)(cluster(gpus=[4, 4], jobs=[]), MINUTE_EPOCHS)
    assert plan.decisions == ()


@every_policy
def test_jobs_on_a_cluster_without_nodes_are_not_admitted(name: str) -> None:
    plan = asked(name)(cluster(gpus=[], jobs=[job("a"), job("b", due_at=9e9)]), MINUTE_EPOCHS)
    assert not [decision for decision in plan.decisions if isinstance(decision, Admit)]


@every_policy
def test_a_job_alone_on_an_idle_cluster_is_started(name: str) -> None:
    plan = asked(name)(cluster(gpus=[4, 4], jobs=[job("a", workers=(1, 2))]), MINUTE_EPOCHS)
    assert [type(d) for d in plan.decisions if isinstance(d, Admit)] == [Admit]


def test_the_same_seed_draws_the_same_state() -> None:
    assert case(7) == case(7)
    assert case(7) != case(8)
    assert len({one.state for one in map(case, range(50)) if one.state.budgets is None}) > 20
