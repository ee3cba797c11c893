"""Promised jobs do not take turns: who has just started is not stopped for one that can wait.

Two nodes of two GPUs, a promised job of one GPU on each, with much slack; `tight` needs two GPUs of
one node: as many are free, and all are planned to run now, but there is no place for it. Epochs
take 60 s, a start nothing.
"""

import pytest

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.policies import qos
from tests.support.builders import Curve, cluster, promised
from tests.support.plans import stopped_jobs

FREE = Curve(epoch_s=60.0, start_s=0.0)
NOW = 1_000.0


def state(ran_s: float, tight_due_in_s: float) -> ClusterState:
    ran = [
        promised(
            f"ran{number}",
            NOW + 50_000.0,
            epochs=100,
            running=1,
            nodes=(f"n{number}",),
            resumed_at=NOW - ran_s,
            epoch_started_at=NOW,
        )
        for number in range(2)
    ]
    tight = promised("tight", NOW + tight_due_in_s, epochs=10, gpus_per_worker=2)
    return cluster(gpus=[2, 2], jobs=[*ran, tight], now=NOW)


@pytest.mark.parametrize("ran_s", [1.0, 20.0, 59.0])
def test_who_has_just_started_runs_on_while_the_other_can_wait(ran_s: float) -> None:
    plan = qos.decide(state(ran_s, 1_000.0), FREE)
    assert stopped_jobs(plan) == []


@pytest.mark.parametrize("ran_s", [1.0, 20.0, 59.0])
def test_it_is_decided_again_when_the_guard_ends(ran_s: float) -> None:
    plan = qos.decide(state(ran_s, 1_000.0), FREE)
    assert plan.wake_at <= NOW + 60.0 - ran_s


def test_who_has_run_a_while_is_stopped_for_a_promise_that_is_due_before() -> None:
    assert stopped_jobs(qos.decide(state(60.0, 1_000.0), FREE)) == ["team/ran0"]


def test_a_promise_that_cannot_wait_so_long_stops_who_has_just_started() -> None:
    """10 epochs of 60 s, due in 700 s: after a guard of 59 s and an epoch's end it would be late."""
    assert stopped_jobs(qos.decide(state(1.0, 700.0), FREE)) == ["team/ran0"]
