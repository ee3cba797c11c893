"""GPUs that others gave for a job: whose they are, and for how long. Epochs of 60 s, linear speed-up."""

from collections.abc import Callable
from typing import Any

import pytest

from laxity_scheduler.model.cluster import ClusterState, Hold
from laxity_scheduler.model.decision import Admit, Promised, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import PlanError, apply_plan, check_plan
from laxity_scheduler.policies import qos
from tests.promise.test_toy_world import is_interfered_with, keeps_to_quotas, runs_through
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised
from tests.support.plans import started_jobs, stopped_jobs

WHY = reason("order", policy="test")


def held_for(name: str, *jobs: Job, gpus: int = 1, free: int = 2) -> ClusterState:
    """One node; so many of its free GPUs are held for a job, for ten minutes."""
    holds = [Hold(f"team/{name}", "n0", gpus, 601.0)]
    return cluster(gpus=free + sum(one.workers for one in jobs), jobs=jobs, holds=holds, now=1.0)


def runs(due_at: float, **fields: Any) -> Job:
    """Ten epochs, on one worker or two; it runs on one."""
    began = {"epoch_started_at": 1.0, "resumed_at": 0.0, "width_changed_at": 0.0}
    return promised("runs", due_at, workers=(1, 2), running=1, **began, **fields)


def test_what_is_held_for_a_running_job_that_needs_no_more_is_for_others() -> None:
    """It ends in 600 s on one GPU, 100 s early. The other has to start now."""
    state = held_for("runs", runs(701.0), promised("comes", 605.0), free=1)
    plan = qos.decide(state, MINUTE_EPOCHS)
    assert started_jobs(plan) == ["team/comes"]
    assert plan.dropped == ()
    assert apply_plan(plan, state).holds == (), "it was for nobody else"


def test_a_running_job_that_would_be_late_keeps_what_is_held_for_it() -> None:
    """Ten epochs by 401 s: it grows at once. Nobody starts on the GPU that is held."""
    state = held_for("runs", runs(401.0), job("other", epochs=5), free=1)
    plan = qos.decide(state, MINUTE_EPOCHS)
    assert [(d.job, d.workers) for d in plan.decisions if isinstance(d, Resize)] == [
        ("team/runs", 2)
    ]
    assert started_jobs(plan) == []


def soft_that_waits() -> Job:
    """It needs two GPUs, of which one is there, and is late in any case."""
    return job("soft", epochs=10, due_at=90.0, workers=(2,), service_class="soft", asked=False)


def test_no_promise_is_late_for_what_is_held_for_a_job_without_one() -> None:
    """One free GPU, held for ten minutes; who is promised has to start within 4 s."""
    state = held_for("soft", soft_that_waits(), promised("comes", 605.0), free=1)
    plan = qos.decide(state, MINUTE_EPOCHS)
    assert started_jobs(plan) == ["team/comes"]
    assert [d.reason.code for d in plan.decisions if isinstance(d, Promised)] == []
    assert apply_plan(plan, state).holds == ()


def test_what_is_held_for_a_job_without_a_promise_is_nobody_elses_while_no_promise_needs_it() -> (
    None
):
    state = held_for("soft", soft_that_waits(), job("other", epochs=5), free=1)
    assert started_jobs(qos.decide(state, MINUTE_EPOCHS)) == []


def start(name: str) -> Plan:
    return Plan((Admit(f"team/{name}", 1, ("n0",), WHY),))


@pytest.mark.parametrize(
    ("state", "fits"),
    [
        pytest.param(held_for("runs", runs(701.0), job("comes"), free=1), True, id="for who runs"),
        pytest.param(
            held_for("soft", soft_that_waits(), promised("comes", 700.0), free=1),
            True,
            id="without a promise, and one waits",
        ),
        pytest.param(
            held_for("soft", soft_that_waits(), job("comes"), free=1), False, id="none is promised"
        ),
        pytest.param(
            held_for("waits", promised("waits", 700.0), promised("comes", 700.0), free=1),
            False,
            id="for a promise that waits",
        ),
    ],
)
def test_a_plan_may_take_what_is_held_for(state: ClusterState, fits: bool) -> None:
    if fits:
        assert apply_plan(start("comes"), state).holds == ()
        return
    with pytest.raises(PlanError, match="free"):
        check_plan(start("comes"), state)


def test_who_takes_free_gpus_beside_held_ones_leaves_these_held() -> None:
    state = held_for("runs", runs(701.0), job("comes"), free=2)
    after = apply_plan(start("comes"), state)
    assert [(hold.job, hold.gpus) for hold in after.holds] == [("team/runs", 1)]


def test_what_is_held_on_other_nodes_stays_held() -> None:
    """Two jobs gave a GPU each on n1; one of n0's is taken."""
    holds = [Hold("team/soft", name, 1, 601.0 + at) for at, name in enumerate(["n0", "n1", "n1"])]
    jobs = [soft_that_waits(), promised("comes", 605.0)]
    after = apply_plan(start("comes"), cluster(gpus=[1, 2], jobs=jobs, holds=holds, now=1.0))
    assert after.holds == tuple(holds[1:])


@pytest.mark.parametrize(
    ("due_at", "stopped"),
    [
        pytest.param(389.0, ["team/least"], id="it cannot wait for its next epoch"),
        pytest.param(430.0, [], id="it can"),
    ],
)
def test_who_has_no_claim_is_asked_before_the_last_epoch_that_ends_in_time(
    due_at: float, stopped: list[str]
) -> None:
    """2 GPUs. One is free in 80 s, as a training ends. The other's holder ends an epoch in 30 s, then in 90 s.

    Who waits needs both for 300 s.
    """
    ends = promised("ends", 500.0, running=1, done=8, epoch_started_at=-39.0)
    least = job("least", epochs=50, running=1, epoch_started_at=-29.0)
    state = cluster(gpus=2, jobs=[ends, least, promised("waits", due_at, workers=(2,))], now=1.0)
    assert stopped_jobs(qos.decide(state, MINUTE_EPOCHS)) == stopped


@pytest.mark.parametrize(
    ("keeps_promises", "seed"),
    [
        pytest.param(runs_through, 4_062, id="held for a training that grows no more"),
        pytest.param(runs_through, 4_391, id="held for a soft job"),
        pytest.param(is_interfered_with, 4_391, id="held for a soft job, others cancelled"),
        pytest.param(keeps_to_quotas, 4_238, id="of a job that ends its epoch too late next time"),
    ],
)
def test_no_promise_is_broken_in_small_worlds_for_gpus(
    keeps_promises: Callable[[int], None], seed: int
) -> None:
    keeps_promises(seed)
