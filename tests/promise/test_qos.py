"""The QoS framework (algorithms.md 3.4, 3.5): order of the queue, widths and donors, by hand.

Epochs take 60 s on one worker and speed up linearly.
"""

from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.model.decision import Admit, Promised
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.policies import qos
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promise, promised
from tests.support.plans import stopped_jobs


def test_a_start_into_idle_gpus_names_the_width_that_it_starts_on() -> None:
    new = job("new", epochs=2, due_at=4_000.0, workers=(1, 2))
    plan = qos.decide(cluster(gpus=2, jobs=[new]), MINUTE_EPOCHS)
    (admit,) = [d for d in plan.decisions if isinstance(d, Admit)]
    assert admit.workers == 2
    assert admit.reason.code == "due_first"
    assert admit.reason.text.endswith("on 2 workers")


def test_who_is_stopped_in_a_decision_is_told_when_it_goes_on() -> None:
    """2 GPUs. wide (300 s on both) makes way for two that need 600 s each by 780 s, side by side."""
    jobs = [
        promised("wide", 1_200.0, workers=(2,), running=2),
        promised("one", 780.0),
        promised("other", 780.0),
    ]
    plan = qos.decide(cluster(gpus=2, jobs=jobs), MINUTE_EPOCHS)
    assert stopped_jobs(plan) == ["team/wide"]
    (told,) = [d for d in plan.decisions if isinstance(d, Promised) and d.job == "team/wide"]
    (waits_until_at, waiting), (ends_at, workers) = told.promise.runs
    assert (waiting, workers) == (0, 2)
    assert 630.0 <= waits_until_at < 660.0
    assert ends_at == told.promise.p90_at == pytest.approx(waits_until_at + 270.0)


@pytest.mark.parametrize(("done", "codes"), [(9, ["promise_moved"]), (10, [])])
def test_the_clock_alone_moves_no_promise(done: int, codes: list[str]) -> None:
    """10 epochs by 1,000 s; promised for 600 s. After the last one its pods may still be there."""
    told = promise(1_000.0, p90_at=600.0)
    late = promised("late", 1_000.0, running=1, done=done, epoch_started_at=800.0, verdict=told)
    plan = qos.decide(cluster(gpus=1, jobs=[late], now=800.0), MINUTE_EPOCHS)
    assert [d.reason.code for d in plan.decisions if isinstance(d, Promised)] == codes


def late_by(late_s: float, **fields: Any) -> Job:
    """Ten epochs of a minute, promised to be done sooner, and told to be in danger."""
    danger = reason("promise_in_danger", p90_at=600.0, late_s=late_s, workers=1)
    told = replace(promise(600.0 - late_s, p90_at=600.0), reason=danger)
    return promised("late", 600.0 - late_s, verdict=told, **fields)


@pytest.mark.parametrize("preemptible", [True, False])
def test_who_cannot_be_in_time_any_more_starts_behind_a_promise_that_can(
    preemptible: bool,
) -> None:
    jobs = [late_by(100.0, preemptible=preemptible), promised("good", 650.0)]
    plan = qos.decide(cluster(gpus=1, jobs=jobs), MINUTE_EPOCHS)
    assert [d.job for d in plan.decisions if isinstance(d, Admit)] == ["team/good"]


def test_who_cannot_be_in_time_any_more_makes_way_for_a_promise_that_can() -> None:
    late = late_by(100.0, running=1, epoch_started_at=0.0)
    jobs = [late, promised("good", 700.0)]
    plan = qos.decide(cluster(gpus=1, jobs=jobs), MINUTE_EPOCHS)
    assert stopped_jobs(plan) == ["team/late"]


def test_who_cannot_be_in_time_any_more_runs_where_nobody_needs_its_place() -> None:
    jobs = [late_by(100.0), promised("good", 650.0)]
    plan = qos.decide(cluster(gpus=2, jobs=jobs), MINUTE_EPOCHS)
    assert {d.job for d in plan.decisions if isinstance(d, Admit)} == {"team/late", "team/good"}


def test_who_is_late_at_p90_alone_goes_first_as_before() -> None:
    jobs = [late_by(-100.0), promised("good", 1_200.0)]
    plan = qos.decide(cluster(gpus=1, jobs=jobs), Curve(spread=1.5))
    assert [d.job for d in plan.decisions if isinstance(d, Admit)] == ["team/late"]
