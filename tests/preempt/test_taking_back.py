"""Nobody makes way for a job that does not need it; a stop that is needed no more is taken back."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Continue, Decision, Preempt, Promised, Refuse
from laxity_scheduler.model.job import Job, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import PlanError, apply_plan, check_plan
from laxity_scheduler.policies.qos import decide
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised
from tests.support.toy_world import ToyWorld

FIVE_S = Curve(epoch_s=5.0, start_s=1.0, stop_s=0.5)
POLICY = with_follow_ups(decide)


def kinds(decisions: Sequence[Decision], kind: type) -> list[str]:
    return [getattr(one, "job", "") for one in decisions if isinstance(one, kind)]


def two_slots_and_a_queue(*, amended_to: float) -> ClusterState:
    """p1 and p2 have 45 s left; p3 has 125 s of work and 215 s: it can wait for either."""
    runs: dict[str, Any] = {
        "running": 1,
        "epochs": 60,
        "done": 51,
        "epoch_started_at": 100.0,
        "resumed_at": 0.0,
    }
    p1 = promised("p1", 300.0, **runs)
    p1 = replace(p1, deadline_at=amended_to, asked=True)
    p2 = promised("p2", 300.0, **runs)
    p3 = promised("p3", 315.0, epochs=25, submitted_at=100.0)
    return cluster(gpus=2, jobs=[p1, p2, p3], now=100.0)


@pytest.mark.parametrize("amended_to", [150.0, 270.0, 400.0])
def test_an_amended_job_makes_no_way_for_one_that_can_wait(amended_to: float) -> None:
    plan = POLICY(two_slots_and_a_queue(amended_to=amended_to), FIVE_S)
    assert kinds(plan.decisions, Preempt) == []
    said = {one.job: one.promise for one in plan.decisions if isinstance(one, Promised)}
    assert said["team/p1"].deadline_at == amended_to
    assert said["team/p1"].p90_at == pytest.approx(145.0)


def test_an_amended_deadline_that_cannot_be_met_is_still_refused() -> None:
    plan = POLICY(two_slots_and_a_queue(amended_to=140.0), FIVE_S)
    assert kinds(plan.decisions, Refuse) == ["team/p1"]


def stopping_for(beneficiary: str, **fields: Any) -> Job:
    """A best-effort job that was asked at 50 s to stop at the end of its epoch."""
    asked: dict[str, Any] = {
        "running": 1,
        "stop_requested_at": 50.0,
        "stop_for": beneficiary,
        "resumed_at": 0.0,
    }
    return job("a", **(asked | fields))


STARTED = promised("b", 900.0, running=1, resumed_at=60.0)
WAITS = promised("b", 700.0, submitted_at=40.0)
REFUSED = job("b", due_at=700.0, verdict=Refusal(reason("fits")), asked=False)


@pytest.mark.parametrize(
    ("others", "goes_on"),
    [
        pytest.param([], True, id="cancelled"),
        pytest.param([REFUSED], True, id="refused"),
        pytest.param([STARTED], True, id="started elsewhere"),
        pytest.param([WAITS], False, id="still waits"),
        pytest.param([replace(WAITS, id="team/c")], False, id="another one needs the same GPU"),
    ],
)
@pytest.mark.parametrize("parked", [None, 4])
def test_a_stop_is_taken_back_when_nobody_needs_it(
    others: list[Job], parked: int | None, *, goes_on: bool
) -> None:
    state = cluster(
        gpus=1 + sum(one.workers for one in others),
        jobs=[stopping_for("team/b", parked_epoch=parked), *others],
        now=100.0,
    )
    plan = POLICY(state, MINUTE_EPOCHS)
    assert kinds(plan.decisions, Continue) == (["team/a"] if goes_on else [])
    if goes_on:
        assert kinds(plan.decisions, Preempt) == []
        row = apply_plan(plan, state).by_id["team/a"]
        assert (row.stop_requested_at, row.stop_for, row.parked_epoch) == (None, "", None)


def test_a_job_on_a_lost_node_is_stopped_though_nobody_needs_its_place() -> None:
    state = cluster(gpus=1, jobs=[stopping_for("team/b", nodes=("gone",))], now=100.0)
    plan = POLICY(state, MINUTE_EPOCHS)
    assert kinds(plan.decisions, Continue) == []
    assert [one.reason.code for one in plan.decisions if isinstance(one, Preempt)] == ["node_lost"]


def test_only_a_stop_that_was_asked_for_is_taken_back() -> None:
    state = cluster(gpus=1, jobs=[job("a", running=1)])
    plan = Plan((Continue("team/a", reason("stop_taken_back", beneficiary="team/b")),))
    with pytest.raises(PlanError, match="not asked to stop"):
        check_plan(plan, state)


def test_no_epoch_is_lost_by_a_stop_that_is_taken_back() -> None:
    """due needs be's GPU from 62 s on and is gone at 65 s, before the epoch ends at 120 s."""
    world = ToyWorld(
        gpus=(1,),
        truth=MINUTE_EPOCHS,
        arrivals=[job("be", epochs=4), promised("due", 662.0, epochs=9, submitted_at=62.0)],
    )
    world.run(POLICY, until=64.0)
    assert kinds([one for _, one in world.of("team/be", Preempt)], Preempt) == ["team/be"]
    world.cancel("team/due")
    world.run(POLICY)
    assert kinds([one for _, one in world.of("team/be", Continue)], Continue) == ["team/be"]
    assert world.finished["team/be"] == 240.0
