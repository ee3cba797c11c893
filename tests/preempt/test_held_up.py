"""Promises of jobs that cannot start for now are judged as soon as it is certain what becomes of them.

Epochs take a minute on one worker; the promised job needs ten.
"""

from dataclasses import replace
from typing import Any

from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.decision import Admit, Promised, Wait
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.service.views.promise_outcome import is_promise_in_danger
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised

DUE_AT = 1000.0
STUCK = "pod train-0-x on node n1 has been ending since 2026-11-28T12:00:00Z"


def held(**fields: Any) -> Job:
    return replace(promised("late", DUE_AT), **fields)


def told(row: Job, now: float) -> tuple[list[str], Plan]:
    """What is said of the promise, and the plan."""
    plan = with_follow_ups(decide)(cluster(gpus=2, jobs=[row], now=now), MINUTE_EPOCHS)
    check_plan(plan, cluster(gpus=2, jobs=[row], now=now))
    said = [one.reason for one in plan.decisions if isinstance(one, Promised)]
    return [one.text for one in said], plan


def after(row: Job, plan: Plan) -> Job:
    """The job once it was told."""
    (verdict,) = [one.promise for one in plan.decisions if isinstance(one, Promised)]
    return replace(row, verdict=verdict)


def test_a_try_that_comes_too_late_is_a_danger_at_once() -> None:
    row = held(not_before=700.0, failed_starts=4)

    texts, plan = told(row, 10.0)

    assert texts == [
        "the P90 finish is now 1970-01-01T00:21:40Z, 5m00s after the promised deadline, on 1 worker"
    ]
    assert told(after(row, plan), 20.0)[0] == []
    assert plan.wake_at == 700.0


def test_a_try_after_the_deadline_breaks_the_promise_and_that_is_said_at_once() -> None:
    row = held(not_before=1200.0, failed_starts=5)

    texts, plan = told(row, 10.0)
    warned = after(row, plan)
    endangered = after(held(not_before=700.0), told(held(not_before=700.0), 10.0)[1])

    assert len(told(replace(endangered, not_before=1200.0), 20.0)[0]) == 1
    (text,) = texts
    assert text == (
        "its starts have failed; it is tried again 1970-01-01T00:20:00Z, after the promised deadline "
        "1970-01-01T00:16:40Z: the promise will be broken"
    )
    assert told(warned, 20.0)[0] == []
    assert plan.wake_at == DUE_AT + 1e-3
    assert told(warned, 1001.0)[0] == [
        "the promised deadline, 1970-01-01T00:16:40Z, has passed: the job runs on as soft"
    ]


def test_a_try_in_time_leaves_the_promise_as_it_is() -> None:
    assert told(held(not_before=100.0, failed_starts=2), 10.0)[0] == []


def test_pods_that_cannot_end_are_named_and_the_promise_is_in_danger() -> None:
    row = held(terminating_workers=1, cannot_end=STUCK)

    texts, plan = told(row, 10.0)
    (verdict,) = [one.promise for one in plan.decisions if isinstance(one, Promised)]
    waits = [one.reason.text for one in plan.decisions if isinstance(one, Wait)]

    assert texts == ["no end can be foreseen: no GPUs are planned for it now"]
    assert verdict.p90_at == FOREVER
    assert waits[0].startswith(f"{STUCK}. It starts again when they are gone")
    assert told(after(row, plan), 20.0)[0] == []


def test_once_they_are_gone_the_job_starts_and_is_in_time_again() -> None:
    row = held(terminating_workers=1, cannot_end=STUCK)
    gone = replace(after(row, told(row, 10.0)[1]), terminating_workers=0, cannot_end="")

    plan = told(gone, 30.0)[1]

    assert [one.job for one in plan.decisions if isinstance(one, Admit)] == [gone.id]
    assert [one.reason.code for one in plan.decisions if isinstance(one, Promised)] == ["fits"]


def test_what_stuck_pods_hold_is_promised_to_nobody() -> None:
    stuck = held(terminating_workers=2, cannot_end=STUCK, widths=(2,))
    newcomer = job("new", due_at=900.0)
    state = cluster(gpus=2, jobs=[stuck, newcomer], now=10.0)
    full = replace(state, nodes=tuple(replace(node, free_gpus=0) for node in state.nodes))

    plan = with_follow_ups(decide)(full, MINUTE_EPOCHS)

    assert [one.job for one in plan.decisions if isinstance(one, Promised)] == [stuck.id]


def test_a_promise_without_an_end_in_sight_counts_as_in_danger() -> None:
    view = {"verdict": "promised", "state": "suspended", "broken": False, "deadline_at": 5.0}
    assert is_promise_in_danger({**view, "p90_at": None})
    assert not is_promise_in_danger({**view, "p90_at": 4.0})
    assert isinstance(held().verdict, Promise)
