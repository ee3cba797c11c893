"""Soft jobs claim what promises leave, in order of deadline (algorithms.md 3.4). An epoch takes 60 s."""

from dataclasses import replace
from typing import Final

import pytest

from laxity_scheduler.model.cluster import Hold
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.policies import qos
from laxity_scheduler.promising.claims import MOST_STOPS
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised
from tests.support.plans import started_widths, stopped_jobs


@pytest.mark.parametrize(
    ("due_at", "first"),
    [pytest.param(2_000.0, "soft", id="to spare"), pytest.param(1_250.0, "hard", id="hardly any")],
)
def test_a_promise_lets_a_soft_job_go_first_only_with_time_to_spare(
    due_at: float, first: str
) -> None:
    """1 GPU, 600 s each. The soft one is in time only if it starts now: hard then ends at 1,200 s."""
    soft = job("soft", due_at=700.0, service_class="soft", submitted_at=1.0)
    state = cluster(gpus=1, jobs=[promised("hard", due_at), soft], now=1.0)
    assert list(started_widths(qos.decide(state, MINUTE_EPOCHS))) == [first]


def test_soft_jobs_that_are_all_in_time_start_in_order_of_deadline() -> None:
    """1 GPU. early: 300 s by 990 s. tight: 660 s by 1,000 s, in time behind it."""
    jobs = [
        job("tight", epochs=11, due_at=1_000.0, service_class="soft"),
        job("early", epochs=5, due_at=990.0, service_class="soft", submitted_at=1.0),
    ]
    plan = qos.decide(cluster(gpus=1, jobs=jobs, now=1.0), MINUTE_EPOCHS)
    assert list(started_widths(plan)) == ["early"]


def test_a_soft_job_that_is_late_anyway_delays_none_that_is_not() -> None:
    """1 GPU. lost: 600 s by 500 s, and due first."""
    jobs = [
        job("lost", due_at=500.0, service_class="soft"),
        job("saved", due_at=640.0, service_class="soft", submitted_at=1.0),
    ]
    plan = qos.decide(cluster(gpus=1, jobs=jobs, now=1.0), MINUTE_EPOCHS)
    assert list(started_widths(plan)) == ["saved"]


def test_a_newcomer_is_promised_as_if_soft_jobs_claimed_nothing() -> None:
    """1 GPU. 600 s by 640 s, with a soft one of as much and with as little time."""
    jobs = [
        job("soft", due_at=620.0, service_class="soft"),
        job("hard", due_at=640.0, submitted_at=1.0),
    ]
    plan = qos.decide(cluster(gpus=1, jobs=jobs, now=1.0), MINUTE_EPOCHS)
    assert list(started_widths(plan)) == ["hard"]


TIGHT: Final = job(
    "tight", epochs=20, due_at=780.0, workers=(2,), service_class="soft", asked=False
)


@pytest.mark.parametrize(
    ("stops", "stopped"),
    [
        pytest.param(MOST_STOPS - 1, ["team/wide"], id="seldom"),
        pytest.param(MOST_STOPS, [], id="often"),
    ],
)
def test_who_was_stopped_often_makes_way_for_no_soft_job(stops: int, stopped: list[str]) -> None:
    """2 GPUs, both held: 300 s of work by 2,000 s. The other needs 600 s on both by 780 s."""
    wide = job(
        "wide", due_at=2_000.0, service_class="soft", workers=(2,), running=2, preemptions=stops
    )
    plan = qos.decide(cluster(gpus=2, jobs=[wide, TIGHT], now=1.0), MINUTE_EPOCHS)
    assert stopped_jobs(plan) == stopped


def test_gpus_held_for_a_soft_job_are_no_less_free_for_it_as_others_claim_what_is_left() -> None:
    """2 GPUs: one runs 600 s for a promise, one is held. Each soft one needs 300 s, on one GPU."""
    runs = promised("runs", 4_000.0, epochs=10, running=1, nodes=("n1",))
    soft = [
        job(name, epochs=5, due_at=due_at, service_class="soft", asked=False)
        for name, due_at in [("held", 400.0), ("behind", 1_000.0)]
    ]
    holds = [Hold("team/held", "n0", 1, 601.0)]
    state = cluster(gpus=[1, 1], jobs=[runs, *soft], holds=holds, now=1.0)
    assert list(started_widths(qos.decide(state, MINUTE_EPOCHS))) == ["held"]


def test_no_promise_makes_way_for_a_soft_job() -> None:
    """Though it would be in time all the same."""
    wide = promised("wide", 2_000.0, workers=(2,), running=2)
    plan = qos.decide(cluster(gpus=2, jobs=[wide, TIGHT], now=1.0), MINUTE_EPOCHS)
    assert stopped_jobs(plan) == []


def test_a_best_effort_job_that_was_stopped_often_starts_only_to_run_to_its_end() -> None:
    """2 GPUs, one of them promised away from 120 s on: an epoch fits before that, ten do not."""
    runs = promised("runs", 200.0, epochs=2, running=1)
    comes = promised("comes", 800.0, epochs=10, workers=(2,))
    least = job("least", epochs=10, submitted_at=1.0)
    for stops, starts in ((0, ["least"]), (MOST_STOPS, [])):
        jobs = [runs, comes, replace(least, preemptions=stops)]
        plan = qos.decide(cluster(gpus=2, jobs=jobs, now=1.0), MINUTE_EPOCHS)
        assert list(started_widths(plan)) == starts
        assert not [d for d in plan.decisions if isinstance(d, Preempt)]
