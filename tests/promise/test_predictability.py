"""`qos:predictability=P`: best-effort jobs go by class of run time and arrival, and who comes later overtakes less."""

from collections.abc import Sequence

import pytest

from laxity_lab.simulate.run import Setting, simulate
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.policies.registry import UnknownPolicyError, find, find_planner
from laxity_scheduler.promising.reservations import Reservations
from tests.support.builders import MINUTE_EPOCHS, cluster, job
from tests.support.plans import started_jobs
from tests.support.simulated import job as timed
from tests.support.simulated import trace

NEVER_AGES = 500.0  # s: before anybody has waited for ten minutes


def by(predictability: float) -> Policy:
    return find(f"qos:predictability={predictability:g}").policy()


def best_effort(name: str, epochs: int, came_at: float, running: int = 0) -> Job:
    return job(
        name, epochs=epochs, asked=False, submitted_at=came_at, queued_at=came_at, running=running
    )


def starts(policy: Policy, jobs: Sequence[Job], gpus: int, now: float = NEVER_AGES) -> list[str]:
    started = started_jobs(policy(cluster(gpus=gpus, jobs=jobs, now=now), MINUTE_EPOCHS))
    return [name.removeprefix("team/") for name in started]


def admits(plan: Plan) -> list[Admit]:
    return [one for one in plan.decisions if isinstance(one, Admit)]


def test_a_shorter_job_of_the_same_class_that_came_later_does_not_overtake() -> None:
    jobs = [best_effort("first", 40, 0.0), best_effort("shorter", 20, 10.0)]

    assert starts(decide, jobs, 1) == ["shorter"]
    assert starts(by(0.0), jobs, 1) == ["shorter"]
    assert starts(by(0.5), jobs, 1) == ["first"]
    assert starts(by(1.0), jobs, 1) == ["first"]


def test_classes_share_the_gpus_so_that_short_jobs_do_not_wait_for_all_long_ones() -> None:
    long = [best_effort(f"long-{number}", 1000 + number, float(number)) for number in range(4)]
    short = [best_effort(f"short-{number}", 10, 10.0 + number) for number in range(4)]

    assert sorted(starts(by(1.0), [*long, *short], 4)) == ["long-0", "long-1", "short-0", "short-1"]


def test_gpus_that_jobs_of_a_class_hold_count_as_their_share() -> None:
    running = [best_effort(f"runs-{number}", 1000, 0.0, running=1) for number in range(2)]
    waiting = [best_effort("long", 1000, 1.0)]
    waiting += [best_effort(f"short-{number}", 10, 10.0 + number) for number in range(2)]

    assert sorted(starts(by(1.0), [*running, *waiting], 4)) == ["short-0", "short-1"]


@pytest.mark.parametrize(
    ("predictability", "why"), [(0.0, "aged"), (0.5, "its_turn"), (1.0, "its_turn")]
)
def test_a_job_has_waited_too_long_later_the_more_predictable_finishes_are(
    predictability: float, why: str
) -> None:
    waited_s = 6 * 20 * 60.0  # six run times: more than five, less than ten
    state = cluster(gpus=1, jobs=[best_effort("waits", 20, 0.0)], now=waited_s)

    (start,) = admits(by(predictability)(state, MINUTE_EPOCHS))
    assert start.reason.code == why


def test_it_says_that_it_was_its_turn() -> None:
    plan = by(1.0)(cluster(gpus=1, jobs=[best_effort("first", 40, 0.0)]), MINUTE_EPOCHS)

    (start,) = admits(plan)
    assert start.reason.code == "its_turn"
    assert start.reason.text == "it starts: its turn among jobs that take about as long (40m00s)"


@pytest.mark.parametrize("argument", ["predictability=2", "predictability=x", "patience=1", "0.5"])
def test_another_setting_is_refused_with_what_may_be_written(argument: str) -> None:
    with pytest.raises(UnknownPolicyError, match="predictability=P with P from 0 to 1, not"):
        find(f"qos:{argument}")


def test_workflows_are_promised_with_it_as_well() -> None:
    planner = find_planner("qos:predictability=0.5")

    assert planner is not None
    assert planner.see(cluster(gpus=1)).predictability == 0.5
    assert find_planner("learned:weights.npz") is None


def test_who_has_waited_too_long_is_the_same_for_workflows_and_for_the_policy() -> None:
    waits = best_effort("waits", 20, 0.0)
    state = cluster(gpus=1, jobs=[waits], now=6 * 20 * 60.0)

    for name, claims in (("qos", [waits]), ("qos:predictability=1", [])):
        planner = find_planner(name)
        assert planner is not None
        seen = planner.see(state)
        assert Reservations(seen, Forecasts(seen, MINUTE_EPOCHS)).aged == claims


@pytest.mark.parametrize(("predictability", "is_kept"), [(0.0, False), (1.0, True)])
def test_a_finish_that_was_told_holds_where_a_shorter_job_may_not_overtake(
    predictability: float, is_kept: bool
) -> None:
    """One GPU is busy; a job of 50 minutes waits for it, and one of 10 comes before it is free."""
    jobs = trace(
        timed("busy", at=0.0, runs_s=3000.0),
        timed("waits", at=10.0, runs_s=3000.0),
        timed("latecomer", at=500.0, runs_s=600.0),
    )
    setting = Setting(f"qos:predictability={predictability}", 1, 1, tells=True)

    run = simulate(jobs, setting)

    ended = run.column("finished_at").tolist()[1]
    assert (run.told["default/waits"].p50_at == pytest.approx(ended, abs=1.0)) == is_kept
