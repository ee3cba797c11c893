"""How wide a job runs: wide enough for its deadline, not wider than it pays, and without swings."""

from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.frame.curve import useful_widths
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.decision import Admit, Preempt, Promised, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies.qos import decide
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised


def resized(plan: Plan) -> list[tuple[str, int, str, str]]:
    return [
        (one.job, one.workers, one.at, one.reason.code)
        for one in plan.decisions
        if isinstance(one, Resize)
    ]


def admitted(plan: Plan) -> dict[str, int]:
    return {one.job: one.workers for one in plan.decisions if isinstance(one, Admit)}


def wide(name: str = "a", due_at: float = 9e9, **fields: Any) -> Job:
    return promised(name, due_at, **({"workers": (1, 2, 4)} | fields))


@pytest.mark.parametrize(
    ("due_at", "want"),
    [
        pytest.param(700.0, 1, id="one worker is enough"),
        pytest.param(540.0, 2, id="a minute less takes a second worker"),
        pytest.param(160.0, 4, id="only the widest is in time"),
    ],
)
def test_a_job_starts_on_the_fewest_workers_in_time_while_others_wait(
    due_at: float, want: int
) -> None:
    jobs = [job("hard", due_at=due_at, workers=(1, 2, 4)), job("waits", workers=(8,))]
    assert admitted(decide(cluster(gpus=8, jobs=jobs), MINUTE_EPOCHS)) == {"team/hard": want}


def test_a_width_is_chosen_with_a_margin_where_there_is_one() -> None:
    jobs = [job("hard", due_at=610.0, workers=(1, 2)), job("waits", workers=(8,))]
    assert admitted(decide(cluster(gpus=8, jobs=jobs), MINUTE_EPOCHS)) == {"team/hard": 2}
    assert admitted(decide(cluster(gpus=1, jobs=jobs), MINUTE_EPOCHS)) == {"team/hard": 1}


def test_a_promise_that_would_be_missed_is_kept_by_growing() -> None:
    late = wide(due_at=500.0, running=1)
    plan = decide(cluster(gpus=4, jobs=[late, job("be", workers=(4,))], now=1.0), MINUTE_EPOCHS)
    assert resized(plan) == [("team/a", 2, "now", "grow_to_meet_deadline")]


def test_a_job_grows_on_its_own_nodes_only() -> None:
    late = wide(due_at=500.0, running=1, nodes=("n1",))
    full = job("fills", running=3, workers=(3,), nodes=("n1",) * 3, preemptible=False)
    plan = decide(cluster(gpus=[4, 4], jobs=[late, full], now=1.0), MINUTE_EPOCHS)
    stops = [one for one in plan.decisions if isinstance(one, Preempt)]
    assert resized(plan) == []
    assert [(one.job, one.beneficiary, one.reason.code) for one in stops] == [
        ("team/a", "team/a", "restart_wider")
    ]


def test_others_are_stopped_for_growth_that_keeps_a_promise() -> None:
    late = wide(due_at=500.0, running=1)
    jobs = [late, job("be", running=1)]
    plan = decide(cluster(gpus=2, jobs=jobs, now=1.0), MINUTE_EPOCHS)
    stops = [one for one in plan.decisions if isinstance(one, Preempt)]
    assert [(one.job, one.beneficiary) for one in stops] == [("team/be", "team/a")]


@pytest.mark.parametrize(
    ("now", "stopped"),
    [
        pytest.param(95.0, [], id="late at P90 alone"),
        pytest.param(105.0, ["team/be"], id="late at P50 too"),
    ],
)
def test_nobody_is_stopped_for_one_overdue_epoch_while_time_may_be_left(
    now: float, stopped: list[str]
) -> None:
    """Four epochs of a minute are left after one that should have ended at 60 s."""
    late = wide(due_at=380.0, running=1, done=5)
    plan = decide(cluster(gpus=2, jobs=[late, job("be", running=1)], now=now), MINUTE_EPOCHS)

    assert [one.job for one in plan.decisions if isinstance(one, Preempt)] == stopped
    assert resized(plan) == []


def test_a_promise_in_danger_is_said_once_and_with_the_reason() -> None:
    lost = wide(due_at=300.0, running=1, workers=(1,))
    state = cluster(gpus=1, jobs=[lost], now=1.0)
    plan = decide(state, MINUTE_EPOCHS)
    said = [one for one in plan.decisions if isinstance(one, Promised)]
    assert [one.reason.code for one in said] == ["promise_in_danger"]
    assert said[0].promise.p90_at > said[0].promise.deadline_at
    again = decide(apply_plan(plan, state), MINUTE_EPOCHS)
    assert not [one for one in again.decisions if isinstance(one, Promised)]


def test_a_broken_promise_is_said_once_and_the_job_runs_on() -> None:
    late = promised("a", 300.0, running=1)
    state = cluster(gpus=1, jobs=[late], now=301.0)
    plan = decide(state, MINUTE_EPOCHS)
    assert [one.reason.code for one in plan.decisions] == ["promise_broken"]
    assert decide(apply_plan(plan, state), MINUTE_EPOCHS).decisions == ()


def test_idle_gpus_go_where_they_save_most_per_gpu() -> None:
    jobs = [
        job("long", epochs=100, running=1, workers=(1, 2)),
        job("short", epochs=20, running=1, workers=(1, 2)),
    ]
    plan = decide(cluster(gpus=3, jobs=jobs, now=500.0), MINUTE_EPOCHS)
    assert resized(plan) == [("team/long", 2, "now", "grow_into_idle")]


@pytest.mark.parametrize("running", [0, 1])
def test_idle_gpus_stay_idle_where_every_width_takes_for_ever(running: int) -> None:
    """By what the predictor says: then a wider one saves nothing."""
    endless, jobs = Curve(epoch_s=float("inf")), [job("a", workers=(1, 2), running=running)]
    plan = decide(cluster(gpus=4, jobs=jobs, now=500.0), endless)
    assert resized(plan) == []
    assert admitted(plan) == ({} if running else {"team/a": 1})


def test_a_starting_job_takes_idle_gpus_at_once() -> None:
    plan = decide(cluster(gpus=8, jobs=[job("a", workers=(1, 2, 4))]), MINUTE_EPOCHS)
    assert admitted(plan) == {"team/a": 4}


def test_no_job_is_ever_given_a_width_that_is_slower_than_a_smaller_one() -> None:
    peak = Curve(speedup={1: 1.0, 2: 1.8, 4: 1.5, 8: 2.5})
    one = job("a", workers=(1, 2, 4, 8))
    assert Forecasts(cluster(jobs=[one]), peak).curve(one).widths == (1, 2, 8)
    assert admitted(decide(cluster(gpus=7, jobs=[one]), peak)) == {"team/a": 2}


def test_a_job_that_does_not_get_faster_stays_narrow() -> None:
    flat = Curve(speedup={1: 1.0, 2: 1.0, 4: 0.9})
    plan = decide(cluster(gpus=8, jobs=[job("a", workers=(1, 2, 4))]), flat)
    assert admitted(plan) == {"team/a": 1}


@pytest.mark.parametrize(
    ("fields", "predictor"),
    [
        pytest.param({"width_changed_at": 450.0}, MINUTE_EPOCHS, id="changed an epoch ago"),
        pytest.param({}, Curve(stop_s=60.0), id="re-forming costs too much of what it saves"),
        pytest.param({"done": 9}, Curve(start_s=90.0), id="it ends before a restart would"),
        pytest.param({"formed": 0, "epoch_started_at": None}, MINUTE_EPOCHS, id="it starts"),
        pytest.param({"pinned": True}, MINUTE_EPOCHS, id="it is pinned"),
        pytest.param({"resize_to": 1}, MINUTE_EPOCHS, id="it shrinks"),
        pytest.param({"stop_requested_at": 1.0}, MINUTE_EPOCHS, id="it stops"),
    ],
)
def test_a_job_is_not_widened_into_idle_gpus_when(fields: dict[str, Any], predictor: Curve) -> None:
    runs = job("a", running=2, workers=(1, 2, 4), **({"epoch_started_at": 490.0} | fields))
    assert resized(decide(cluster(gpus=8, jobs=[runs], now=500.0), predictor)) == []


def test_the_end_of_the_cooldown_is_an_instant_to_look_again() -> None:
    runs = job("a", running=1, workers=(1, 2), width_changed_at=480.0, epoch_started_at=480.0)
    state = cluster(gpus=2, jobs=[runs], now=500.0)
    plan = decide(state, MINUTE_EPOCHS)
    assert (resized(plan), plan.wake_at) == ([], 600.0)
    assert resized(decide(replace(state, now=600.0), MINUTE_EPOCHS))


def test_wide_jobs_give_back_what_they_do_not_need_when_others_wait() -> None:
    jobs = [wide(due_at=5000.0, running=4), job("be", submitted_at=1.0)]
    plan = decide(cluster(gpus=4, jobs=jobs, now=300.0), MINUTE_EPOCHS)
    assert resized(plan) == [("team/a", 1, "epoch", "shrink_donor")]


def test_a_job_that_is_hardly_ahead_gives_nothing_back() -> None:
    jobs = [wide(due_at=640.0, running=2, epoch_started_at=300.0), job("be", submitted_at=1.0)]
    assert resized(decide(cluster(gpus=2, jobs=jobs, now=300.0), MINUTE_EPOCHS)) == []


def test_gpus_on_their_way_are_not_freed_twice() -> None:
    shrinks = wide(due_at=5000.0, running=4, resize_to=2)
    other = wide("b", due_at=5000.0, running=4)
    jobs = [shrinks, other, job("be", submitted_at=1.0)]
    assert resized(decide(cluster(gpus=8, jobs=jobs, now=300.0), MINUTE_EPOCHS)) == []


def test_a_soft_job_that_would_be_late_grows_into_free_gpus() -> None:
    soft = job("soft", due_at=900.0, service_class="soft", running=1, workers=(1, 2), done=0)
    state = cluster(gpus=2, jobs=[replace(soft, epoch_started_at=490.0)], now=500.0)
    assert resized(decide(state, MINUTE_EPOCHS)) == [
        ("team/soft", 2, "now", "grow_to_meet_deadline")
    ]


def test_a_width_that_is_no_faster_than_a_smaller_one_is_not_offered() -> None:
    mean_s = {1: 8.0, 2: 5.0, 4: 4.0, 8: 4.5, 16: 3.9, 32: 3.9}
    totals = {width: (0.0, 0.0, seconds, 0.0) for width, seconds in mean_s.items()}

    assert useful_widths(tuple(totals), totals) == (1, 2, 4, 16)
