"""The guard of a learned policy: its reward is measured, its teacher's predicted on the same snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies.registry import find
from laxity_scheduler.service.reward_guard import SLOTS, RewardComparison, RewardGuard
from laxity_scheduler.shares import promised_widths
from laxity_scheduler.shares.floors_on_own_nodes import plan_floors
from laxity_scheduler.shares.promised_widths import (
    PromiseFloors,
    plan_promised_widths,
)
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised
from tests.support.toy_world import ToyWorld

WIDTHS = (1, 2, 4, 8)
NEARLY_LINEAR = Curve(
    epoch_s=60.0, speedup={1: 1.0, 2: 1.9, 4: 3.6, 8: 6.5}, start_s=5.0, stop_s=2.0
)


@dataclass
class Watched:
    """A policy, and the guard beside it that is told what was decided on."""

    policy: Policy
    guard: RewardGuard
    believed: Curve | None = None

    def __call__(self, state: ClusterState, predictor: Predictor) -> Plan:
        predictor = self.believed or predictor
        plan = self.policy(state, predictor)
        self.guard.observe(state, predictor)
        return plan


def narrow(state: ClusterState, predictor: Predictor) -> Plan:
    """Starts every job on its least width, and leaves the rest of the cluster idle."""
    jobs = tuple([replace(each, widths=each.widths[:1]) for each in state.jobs])
    return find("optimus").policy()(replace(state, jobs=jobs), predictor)


def arrivals(number: int = 12, epochs: int = 30) -> Sequence[Job]:
    return [
        job(f"j{each}", epochs=epochs + each, workers=WIDTHS, submitted_at=200.0 * each)
        for each in range(number)
    ]


def compared(
    policy: Policy, *, believed: Curve | None = None, world: ToyWorld | None = None
) -> RewardComparison:
    """After the first window of slots."""
    guard = RewardGuard("optimus")
    world = world or ToyWorld([8, 8], arrivals(), NEARLY_LINEAR)
    watched = Watched(policy, guard, believed)
    for until in range(500, 20_000, 100):
        world.run(watched, until=float(until))
        if guard.comparison.slots == SLOTS:
            return guard.comparison
    raise AssertionError(f"only {guard.comparison.slots} slots")


def test_a_policy_that_does_what_its_teacher_does_never_falls_short() -> None:
    answer = compared(find("optimus").policy())
    assert not answer.falls_short
    assert 0.95 < answer.measured / answer.teacher < 1.06


def test_a_policy_that_leaves_gpus_idle_falls_short_after_twenty_slots() -> None:
    answer = compared(narrow)
    assert answer.falls_short
    assert answer.measured < 0.6 * answer.teacher


def test_no_policy_is_blamed_for_gpus_that_a_promise_needs() -> None:
    """One job must have all eight to be in time; on one GPU each all jobs would train more together."""
    waits = [job(f"j{each}", epochs=60, workers=WIDTHS, submitted_at=1.0) for each in range(7)]
    due = promised("due", 2_400.0, epochs=60, workers=WIDTHS)
    flat = Curve(epoch_s=60.0, speedup={1: 1.0, 2: 1.2, 4: 1.4, 8: 1.6}, start_s=5.0, stop_s=2.0)
    world = ToyWorld([8], [due, *waits], flat)
    answer = compared(find("optimus_with_promises").policy(), world=world)
    assert not answer.falls_short
    assert world.observe().by_id["team/due"].workers == 8


def test_no_policy_is_blamed_for_trainings_that_are_slower_or_faster_than_predicted() -> None:
    for factor in (0.7, 1.4):
        believed = Curve(
            epoch_s=60.0 * factor, speedup=NEARLY_LINEAR.speedup, start_s=5.0, stop_s=2.0
        )
        answer = compared(find("optimus").policy(), believed=believed)
        assert 0.9 < answer.measured / answer.teacher < 1.12, factor
        assert compared(narrow, believed=believed).falls_short, factor


def test_a_shortfall_counts_only_once_the_window_is_full() -> None:
    assert not RewardComparison(SLOTS - 1, 0.5, 1.0).falls_short
    assert RewardComparison(SLOTS, 0.899, 1.0).falls_short
    assert not RewardComparison(SLOTS, 0.901, 1.0).falls_short


def beside_a_promise() -> ClusterState:
    rows = [promised("due", 1e5, running=1), job("narrow"), job("wide", workers=(3,))]
    return cluster(gpus=4, jobs=rows)


def test_the_promises_of_a_snapshot_are_planned_once_for_a_policy_and_its_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[object] = []

    def count_plans(*args: Any) -> PromiseFloors:
        planned.append(args)
        return plan_promised_widths(*args)

    monkeypatch.setattr(promised_widths, "plan_promised_widths", count_plans)
    watched = Watched(find("learned").policy(), RewardGuard("optimus"))
    for state in (beside_a_promise(), beside_a_promise()):
        watched(state, MINUTE_EPOCHS)
    assert len(planned) == 2
    watched(state, Curve(epoch_s=30.0))
    assert len(planned) == 3


def test_what_one_takes_beside_the_plans_is_still_there_for_another() -> None:
    state = beside_a_promise()
    narrow, wide = state.by_id["team/narrow"], state.by_id["team/wide"]
    policy, guard = (plan_floors(state, MINUTE_EPOCHS) for _ in range(2))
    assert policy.fits(narrow, 1)
    policy.take(wide, 3)
    assert not policy.fits(narrow, 1)
    assert guard.fits(narrow, 1)
