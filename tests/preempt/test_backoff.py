"""A job that fails to start is tried less and less, and holds nobody up meanwhile."""

from dataclasses import replace
from typing import Any

import pytest

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_scheduler.held_up import hide_held_up
from laxity_scheduler.inflight import follow_ups, with_follow_ups
from laxity_scheduler.live import Report
from laxity_scheduler.model.cluster import ClusterState, Hold, Node
from laxity_scheduler.model.decision import Preempt, Promised, Resize
from laxity_scheduler.model.job import Job, Promise
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.model.start_backoff import (
    BACKOFF,
    backoff_s,
    count_failed_starts,
)
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.service.expected_times import last_reasons
from laxity_scheduler.service.views.live_view import LastReason, view_of
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promise, promised
from tests.support.plans import started_jobs


def decided(state: ClusterState) -> Plan:
    plan = with_follow_ups(decide)(state, MINUTE_EPOCHS)
    check_plan(plan, state)
    return plan


def broken(**more: Any) -> Job:
    """It comes first, and is not to be tried before 100 s."""
    return replace(promised("broken", 4000.0), not_before=100.0, failed_starts=2, **more)


def test_the_first_time_it_is_tried_again_at_once_and_then_later_and_later() -> None:
    assert [backoff_s(times) for times in (0, 1, 2, 3, 4)] == [0.0, 0.0, 60.0, 120.0, 240.0]
    assert backoff_s(9) == backoff_s(10**9) == BACKOFF.longest_s


def test_of_a_job_stopped_for_its_failed_start_the_failure_is_the_last_word() -> None:
    stopped = replace(promised("broken", 4000.0), workers=1, nodes=("n0",), fitting_workers=0)
    stopped = replace(stopped, died="worker 0 failed with exit code 1: No module named 'x'")
    moved = reason("promise_moved", moved_s=60.0, p90_at=900.0)
    assert isinstance(stopped.verdict, Promise)
    told = Promised(stopped.id, replace(stopped.verdict, reason=moved), moved)

    plan = with_follow_ups(lambda *_: Plan((told,)))(cluster(gpus=1, jobs=[stopped]), MINUTE_EPOCHS)

    assert "No module named 'x'" in last_reasons(plan)[stopped.id].reason
    assert told in plan.decisions, "its P90 finish is written all the same"


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        pytest.param({"failed_starts": 0}, ["promise_moved"], id="a start that is slow"),
        pytest.param({"failed_starts": 2}, [], id="it has not started yet"),
        pytest.param({"failed_starts": 2, "formed": 1}, ["promise_moved"], id="it trains"),
        pytest.param({"failed_starts": 2, "now": 3800.0}, ["promise_in_danger"], id="a danger"),
    ],
)
def test_while_starts_fail_a_finish_that_moves_is_no_news(
    fields: dict[str, Any], codes: list[str]
) -> None:
    """600 s of work, promised for 900 s, due at 4,000 s; every try moves its finish."""
    now = fields.pop("now", 1000.0)
    told = promise(4000.0, p90_at=900.0)
    since = {"resumed_at": now - 5.0, "epoch_started_at": now - 5.0}
    tried = promised("tried", 4000.0, running=1, verdict=told, **{"formed": 0, **since, **fields})

    plan = decide(cluster(gpus=1, jobs=[tried], now=now), MINUTE_EPOCHS)

    assert [one.reason.code for one in plan.decisions if isinstance(one, Promised)] == codes


def test_meanwhile_others_get_the_gpus() -> None:
    jobs = [broken(asked=False), job("other")]
    plan = decided(cluster(gpus=1, jobs=jobs, now=30.0))
    assert started_jobs(plan) == ["team/other"]
    assert plan.wake_at <= 100.0, "it is decided on as soon as it may be tried again"


def test_nobody_is_stopped_for_gpus_that_it_is_about_to_free() -> None:
    urgent = promised("urgent", 700.0)
    gone = broken(asked=False, terminating_workers=1)
    nodes = [Node("n0", 1, 0), Node("n1", 1, 0)]
    state = cluster(gpus=1, jobs=[gone, job("be", running=1, nodes=("n1",)), urgent], now=30.0)
    plan = decided(replace(state, nodes=tuple(nodes)))
    assert [one for one in plan.decisions if isinstance(one, Preempt)] == []


def test_then_it_is_tried_again() -> None:
    jobs = [broken(asked=False), job("other")]
    assert started_jobs(decided(cluster(gpus=1, jobs=jobs, now=100.0))) == ["team/broken"]


@pytest.mark.parametrize(
    ("failed_starts", "due_at", "first"),
    [
        pytest.param(0, 9000.0, "team/early", id="none failed: as planned"),
        pytest.param(1, 9000.0, "team/urgent", id="the other has less slack"),
        pytest.param(1, 1300.0, "team/early", id="the other has more slack"),
        pytest.param(1, 700.0, "team/early", id="only first it is in time"),
    ],
)
def test_a_failed_start_costs_a_job_its_place_before_promises_with_less_slack(
    failed_starts: int, due_at: float, first: str
) -> None:
    """Ten minutes of work each. The early one was planned to start at once, the other behind it."""
    runs = ((600.0, 1),), ((600.0, 0), (1200.0, 1))
    early, urgent = (replace(promise(1400.0), runs=each) for each in runs)
    early = replace(early, deadline_at=due_at)
    jobs = [
        promised("early", due_at, verdict=early, failed_starts=failed_starts),
        promised("urgent", 1400.0, verdict=urgent),
    ]
    assert started_jobs(decided(cluster(gpus=1, jobs=jobs, now=61.0))) == [first]


def test_a_new_deadline_is_judged_at_once() -> None:
    state = cluster(gpus=1, jobs=[broken(asked=True)], now=30.0)
    assert hide_held_up(state)[0] is state


def test_nothing_changes_where_nobody_waits() -> None:
    state = cluster(gpus=2, jobs=[job("be", running=1), job("other")], now=30.0)
    assert hide_held_up(state)[0] is state
    running = cluster(gpus=1, jobs=[job("be", running=1, not_before=100.0, asked=False)], now=30.0)
    assert hide_held_up(running) == (running, ())


def test_gpus_that_are_held_for_it_are_given_to_nobody_else() -> None:
    """A plan that took them would not fit; a live snapshot holds none for it."""
    holds = [Hold("team/broken", "n0", 1, 600.0)]
    state = cluster(gpus=2, jobs=[broken(asked=False), job("other", workers=(2,))], holds=holds)
    plan = decided(replace(state, now=30.0))
    assert (started_jobs(plan), plan.dropped) == ([], ())


@pytest.mark.parametrize(
    ("before", "formed", "times"),
    [
        pytest.param(0, 0, 1, id="the first time"),
        pytest.param(3, 0, 4, id="once more"),
        pytest.param(3, 2, 1, id="they had formed: it starts well enough"),
    ],
)
def test_failures_in_a_row_count(before: int, formed: int, times: int) -> None:
    assert count_failed_starts(job("a", running=2, formed=formed, failed_starts=before)) == times


def reasons(**fields: Any) -> list[tuple[type, str]]:
    state = cluster(gpus=4, jobs=[job("a", running=2, workers=(1, 2), formed=0, **fields)])
    return [(type(one), one.reason.text) for one in follow_ups(state)]


def test_when_it_is_tried_again_is_said() -> None:
    first = "only 0 of 2 pods ran in the time that they have for it"
    assert reasons(fitting_workers=0) == [(Preempt, first)]
    again = f"{first}; it is tried again in 1m00s"
    assert reasons(fitting_workers=0, failed_starts=1) == [(Preempt, again)]
    died = "only 0 of 2 workers run: worker 0 failed; it is tried again in 4m00s"
    assert reasons(fitting_workers=0, died="worker 0 failed", failed_starts=3) == [(Preempt, died)]
    narrower = "only 1 of 2 pods ran in the time that they have for it"
    assert reasons(fitting_workers=1, failed_starts=3) == [(Resize, narrower)]


def test_people_are_told_when_it_is_tried_again() -> None:
    manifest = TrainingSpec(name="broken", qos=QoS.of(deadline="1h"), entry="a:b").to_manifest()

    def view(now: float) -> dict[str, Any]:
        last_reasons = LastReason("order", "", ("team/other",), 900.0)
        row = broken(asked=False)
        return view_of(
            manifest, row, report=Report(), before=None, now=now, last_reason=last_reasons
        )

    assert (view(30.0)["expected_start_at"], view(30.0)["held_by"]) == (100.0, [])
    assert view(30.0)["p90_at"] is None, "nobody knows, and what was said is over"
    assert view(100.0)["p90_at"] is not None
    assert (view(100.0)["expected_start_at"], view(100.0)["held_by"]) == (900.0, ["team/other"])
