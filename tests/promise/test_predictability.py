"""`qos:predictability=P`: best-effort jobs go by class of run time and arrival, and who comes later overtakes less."""

from collections.abc import Sequence

import pytest

from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.policies.registry import UnknownPolicyError, find, plans_by_claims
from tests.support.builders import MINUTE_EPOCHS, cluster, job
from tests.support.plans import started_jobs

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
    with pytest.raises(UnknownPolicyError, match="takes predictability=0 to predictability=1, not"):
        find(f"qos:{argument}")


def test_workflows_are_promised_with_it_as_well() -> None:
    assert plans_by_claims("qos:predictability=0.5")
    assert find("qos:predictability=0.5").plans_by_claims
    assert not plans_by_claims("learned:weights.npz")
