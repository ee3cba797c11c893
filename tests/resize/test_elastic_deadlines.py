"""ElasticFlow (algorithms.md 7.6) and elastic EDF (7.2), by hand.

Epochs take 60 s on one worker and speed up linearly unless said; nothing costs anything. On an
empty cluster each job would be widened by the surplus, so GPUs are filled where shares matter.
"""

from dataclasses import replace
from typing import Literal

import pytest

from laxity_profiler.estimate import Workload
from laxity_scheduler.model.decision import Forecasted, Promised, Refuse
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies import edf_elastic, elasticflow
from laxity_scheduler.shares.rule import policy_of
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised
from tests.support.plans import started_widths

WIDE = (1, 2, 4)


def told(plan: Plan) -> dict[str, str]:
    """Who was promised (fits), who was refused or forecast, by reason code."""
    return {
        d.job.removeprefix("team/"): d.reason.code
        for d in plan.decisions
        if isinstance(d, Promised | Refuse | Forecasted)
    }


@pytest.mark.parametrize(
    ("due_at", "want"),
    [
        # 10 epochs: 600 s on 1, 300 s on 2, 150 s on 4; the other job holds all but `want` GPUs
        pytest.param(600.0, 1, id="just in time on one"),
        pytest.param(599.0, 2, id="a second less takes two"),
        pytest.param(299.0, 4, id="less than 300 s takes four"),
    ],
)
def test_the_minimum_satisfactory_share(due_at: float, want: int) -> None:
    new = job("new", epochs=10, due_at=due_at, workers=WIDE)
    kept = promised("kept", 600.0, epochs=10, workers=(4,), running=4, preemptible=False)
    plan = elasticflow.decide(cluster(gpus=4 + want, jobs=[kept, new]), MINUTE_EPOCHS)
    assert told(plan) == {"new": "fits"}
    assert started_widths(plan) == {"new": want}


def test_a_newcomer_that_makes_nobody_late_is_promised_and_one_more_is_refused() -> None:
    """2 GPUs, least shares in order of deadline (feasible: sum of GPU-time <= 2 x deadline).

    a 600 GPU-s due at 310: 600 <= 620
    b 600 GPU-s due at 660: 1,200 <= 1,320
    c 300 GPU-s due at 660: 1,500 > 1,320
    """
    a = job("a", epochs=10, due_at=310.0, workers=(1, 2))
    b = job("b", epochs=10, due_at=660.0, workers=(1, 2), submitted_at=1.0)
    c = job("c", epochs=5, due_at=660.0, workers=(1, 2), submitted_at=2.0)
    plan = elasticflow.decide(cluster(gpus=2, jobs=[a, b, c], now=2.0), MINUTE_EPOCHS)
    assert told(plan) == {"a": "fits", "b": "fits", "c": "capacity_promised_to_others"}
    assert started_widths(plan) == {
        "a": 2
    }  # due first, and two are its least share; b goes after it


def test_a_job_that_is_late_alone_on_all_gpus_is_refused_with_that_reason() -> None:
    """600 s of work on at most 4 workers is 150 s; due in 149 s."""
    late = job("late", epochs=10, due_at=149.0, workers=WIDE)
    plan = elasticflow.decide(cluster(gpus=8, jobs=[late]), MINUTE_EPOCHS)
    assert told(plan) == {"late": "deadline_before_fastest_finish"}
    (refuse,) = plan.decisions
    assert refuse.reason.fact("late_s") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("surplus", "wider"),
    [
        # growth of GPU-time from 1 to 2 workers: "straight" 2 x 300 - 600 = 0, "bent" 2 x 400 - 600 = 200
        pytest.param("cheapest", "straight", id="the paper: least growth first"),
        pytest.param("dearest", "bent", id="the released code: largest growth first"),
    ],
)
def test_what_is_left_goes_to_the_job_whose_gpu_time_grows(
    surplus: Literal["cheapest", "dearest"], wider: str
) -> None:
    jobs = [
        job("straight", epochs=10, due_at=900.0, workers=(1, 2)),
        job("bent", epochs=10, due_at=900.0, workers=(1, 2), model="bent", submitted_at=0.5),
    ]
    rule = replace(elasticflow.RULE, surplus=surplus)
    plan = policy_of(rule)(cluster(gpus=3, jobs=jobs, now=1.0), _Bent())
    assert started_widths(plan) == {"straight": 1, "bent": 1} | {wider: 2}


class _Bent(Curve):
    """Model "bent" is 1.5 x as fast on two workers."""

    def one_epoch_s(self, workload: Workload, workers: int) -> float:
        bent = workload.model == "bent" and workers == 2
        return 60.0 / (1.5 if bent else float(workers))


def test_elastic_edf_promises_nothing_and_gives_least_shares_in_order_of_deadline() -> None:
    """4 GPUs: first needs 2 (300 s, due at 310), second 2 (300 s, due at 320), third has none left."""
    jobs = [
        job("third", epochs=10, due_at=330.0, workers=WIDE),
        job("second", epochs=10, due_at=320.0, workers=WIDE, submitted_at=1.0),
        job("first", epochs=10, due_at=310.0, workers=WIDE, submitted_at=2.0),
    ]
    plan = edf_elastic.decide(cluster(gpus=4, jobs=jobs, now=2.0), MINUTE_EPOCHS)
    assert started_widths(plan) == {"first": 2, "second": 2}
    assert told(plan) == {}
