"""GPUs that nodes do not list: expected back in a moment, or gone once their workers have ended.

Epochs take a minute on one worker.
"""

from dataclasses import replace

import pytest

from laxity_scheduler.allocation.victims import Need
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.model.cluster import ClusterState, Node
from laxity_scheduler.model.decision import Admit, Preempt, Promised, Refuse
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.policies.registry import REGISTRY, find
from tests.support.builders import MINUTE_EPOCHS, cluster, job, node, promised

AWAY = {"free_gpus": 0, "away_gpus": 4}


def with_node(state: ClusterState, changed: Node) -> ClusterState:
    nodes = [changed if row.id == changed.id else row for row in state.nodes]
    return replace(state, nodes=tuple(nodes))


def done(state: ClusterState) -> Plan:
    plan = decide(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    return plan


def wide(name: str, due_at: float, **fields: object) -> Job:
    """Ten minutes on four workers, each on one GPU."""
    return promised(name, due_at, epochs=40, workers=(4,), **fields)


def asking(due_at: float) -> Job:
    return job("new", epochs=40, workers=(4,), due_at=due_at)


def test_a_ledger_gives_what_is_not_listed_to_nobody() -> None:
    ledger = Ledger(["a", "b"], [-3, 1])
    before = ledger.free_on("a"), ledger.balance_on("a"), ledger.total_free
    copy = ledger.copy()
    ledger.give(["a", "a"], 2)

    assert before == (0, -3, 1)
    assert (ledger.free_on("a"), ledger.balance_on("a"), ledger.total_free) == (1, 1, 2)
    assert copy.balance_on("a") == -3


@pytest.mark.parametrize(("freed", "want"), [(2, 0), (3, 0), (5, 2)])
def test_a_victim_on_unlisted_gpus_makes_room_for_what_is_listed(freed: int, want: int) -> None:
    need = Need(4, 1, Ledger(["a"], [-3]))
    assert need.gain_with({"a": freed}) == want


def test_promises_count_on_gpus_that_are_away_and_nobody_starts_there() -> None:
    there = cluster(gpus=[4, 4], jobs=[wide("runs", 900.0, running=4), asking(700.0)])
    away = with_node(there, node("n1", 4, **AWAY))
    lost = with_node(there, node("n1", 4, free_gpus=0))

    verdicts = [
        {type(one) for one in done(state).decisions if one.job == "team/new"}  # type: ignore[union-attr]
        for state in (there, away, lost)
    ]

    assert [kinds & {Promised, Admit, Refuse} for kinds in verdicts] == [
        {Promised, Admit},
        {Promised},
        {Refuse},
    ]


def test_nobody_is_stopped_for_gpus_that_are_back_in_a_moment() -> None:
    best_effort = job("runs", running=4, workers=(4,), epochs=400)
    waits = wide("waits", 700.0)
    state = cluster(gpus=[4, 4], jobs=[best_effort, waits])
    away = with_node(state, node("n1", 4, **AWAY))
    lost = with_node(state, node("n1", 4, free_gpus=0))

    stops = [
        [one for one in done(row).decisions if isinstance(one, Preempt)] for row in (away, lost)
    ]

    assert [len(decisions) for decisions in stops] == [0, 1]


@pytest.mark.parametrize("unlisted", [0, 4])
def test_workers_on_unlisted_gpus_take_none_of_other_promises(unlisted: int) -> None:
    """Both end in ten minutes; what waits has n1 then, whatever n0 lists."""
    runs = [
        wide(name, 900.0, running=4, nodes=(on,) * 4) for name, on in (("a", "n0"), ("b", "n1"))
    ]
    state = cluster(gpus=[4, 4], jobs=[*runs, asking(1_300.0)])
    state = with_node(state, node("n0", 4 - unlisted, free_gpus=-unlisted))

    decisions = done(state).decisions

    assert any(isinstance(one, Promised) and one.job == "team/new" for one in decisions)
    assert not any(isinstance(one, Preempt) for one in decisions)


def test_nothing_is_promised_behind_workers_on_unlisted_gpus() -> None:
    runs = [
        wide(name, 900.0, running=4, nodes=(on,) * 4) for name, on in (("a", "n0"), ("b", "n1"))
    ]
    two = [asking(1_300.0), replace(asking(1_300.0), id="team/newer")]
    new = {row.id for row in two}
    listed = cluster(gpus=[4, 4], jobs=[*runs, *two])
    state = with_node(listed, node("n0", 0, free_gpus=-4))

    promises = [
        sum(isinstance(one, Promised) and one.job in new for one in done(row).decisions)
        for row in (listed, state)
    ]

    assert promises == [2, 1]


def test_nobody_is_stopped_where_that_frees_nothing() -> None:
    stays = job("stays", running=4, nodes=("n1",) * 4, workers=(4,), epochs=400, preemptible=False)
    on_unlisted = job("runs", running=4, workers=(4,), epochs=400)
    state = cluster(gpus=[4, 4], jobs=[stays, on_unlisted, wide("waits", 700.0)])
    state = with_node(state, node("n0", 0, free_gpus=-4))

    assert not any(isinstance(one, Preempt) for one in done(state).decisions)


@pytest.mark.parametrize("policy", sorted(REGISTRY))
@pytest.mark.parametrize(
    "changed",
    [node("n0", 0, free_gpus=-4), node("n0", 3, free_gpus=-1), node("n0", 4, **AWAY)],
    ids=["none", "fewer", "away"],
)
def test_every_policy_decides_beside_a_node_that_lists_less_than_is_held(
    policy: str, changed: Node
) -> None:
    held = () if changed.away_gpus else ("n0",) * 4
    runs = [job("runs", running=4, nodes=held, epochs=400)] if held else []
    waiting = [job("waits", epochs=4), job("hard", epochs=4, due_at=900.0)]
    state = with_node(cluster(gpus=[4, 4], jobs=[*runs, *waiting]), changed)

    plan = find(policy).policy()(state, MINUTE_EPOCHS)
    check_plan(plan, state)

    starts = [one for one in plan.decisions if isinstance(one, Admit)]
    assert starts
    assert {name for one in starts for name in one.nodes} == {"n1"}
    assert not any(isinstance(one, Preempt) for one in plan.decisions)
