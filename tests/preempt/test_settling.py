"""What is decided at one instant must not undo itself there: soon there is nothing left to decide.

Here, as in the simulator's flat costs, what waits for an epoch's end happens at once, and so the
next decision is made on the same clock. Two donors that widen each other in turn would never end.
"""

from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Forecasted, Preempt, Promised, Refuse, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies import qos
from laxity_scheduler.policies.registry import REGISTRY, find
from laxity_scheduler.promising.claims import claims_of
from laxity_scheduler.promising.room import Room
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised
from tests.support.crowded import crowded
from tests.support.random_states import cases

STATES, FEWER = 200, {"chronus": 20, "edf_elastic": 50}
MOST_CYCLES = 8
WIDTHS = (1, 2, 4, 8)
TEN_MINUTE_EPOCHS = Curve(epoch_s=600.0, start_s=60.0)


def carried_out(plan: Plan, state: ClusterState) -> ClusterState:
    """The snapshot of the same instant at which all that was asked for has happened."""
    after = apply_plan(plan, state)
    free = {node.id: node.free_gpus for node in after.nodes}
    jobs = tuple(_happened(job, free, after.now) for job in after.jobs)
    nodes = tuple(replace(node, free_gpus=free[node.id]) for node in after.nodes)
    return replace(after, jobs=jobs, nodes=nodes)


def _happened(job: Job, free: dict[str, int], now: float) -> Job:
    """Its workers have re-formed, or have left."""
    if not job.workers or job.pinned:
        return job
    stops = job.stop_requested_at is not None
    keeps = 0 if stops else job.resize_to or job.workers
    for node in job.nodes[keeps:]:
        if node in free:  # else it is gone
            free[node] += job.gpus_per_worker
    if stops:
        return replace(
            job,
            workers=0,
            formed=0,
            nodes=(),
            resize_to=0,
            queued_at=now,
            epoch_started_at=None,
            stop_requested_at=None,
            stop_for="",
            parked_epoch=None,
            preemptions=job.preemptions + 1,
        )
    if keeps == job.workers == job.formed:
        return job
    return replace(
        job,
        workers=keeps,
        formed=keeps,
        nodes=job.nodes[:keeps],
        resize_to=0,
        width_changed_at=now,
    )


def cycles(policy: Policy, state: ClusterState, predictor: Curve) -> int:
    """Decisions until one of them changes nobody's workers."""
    for number in range(MOST_CYCLES + 1):
        plan = policy(state, predictor)
        if not any(isinstance(one, Admit | Resize | Preempt) for one in plan.decisions):
            return number
        state = carried_out(plan, state)
    return MOST_CYCLES + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_deciding_again_on_the_same_clock_comes_to_rest(name: str) -> None:
    policy = find(name).policy()
    took = {
        case.seed: cycles(policy, case.state, case.predictor)
        for case in cases(STATES)[: FEWER.get(name, STATES)]
    }
    assert {seed: many for seed, many in took.items() if many > MOST_CYCLES} == {}


@pytest.mark.slow
@pytest.mark.parametrize("states", [300, pytest.param(30_000, marks=pytest.mark.soak)])
def test_promised_jobs_do_not_widen_at_each_other_s_cost_for_ever(states: int) -> None:
    """Of these states one in a hundred never came to rest before; two jobs were enough."""
    took = {seed: cycles(qos.decide, crowded(seed), TEN_MINUTE_EPOCHS) for seed in range(states)}
    assert {seed: many for seed, many in took.items() if many > MOST_CYCLES} == {}


def test_nobody_is_stopped_for_one_that_was_given_its_workers_at_this_very_instant() -> None:
    """Four jobs stopped and started again in turn for job-4, which had just started to grow later."""
    assert cycles(qos.decide, crowded(29_950), TEN_MINUTE_EPOCHS) == 1


def test_who_has_just_given_workers_back_does_not_take_them_again_on_the_same_clock() -> None:
    """4 GPUs. wide: 2 epochs of 600 s on 1 worker, 150 s on 4; due in 863 s, its epoch just begun.

    From the epoch's end on 1 worker it is in time, after 150 + 600 s, so it gives three to the job
    that waits. Where it shrinks at once it needs 2 x 600 s and would take them back, and so on.
    """
    wide = promised("wide", 863.0, epochs=2, workers=(1, 2, 4), running=4)
    waits = promised("waits", 2_016.0, epochs=2, workers=(1, 2, 4))
    state = cluster(gpus=4, jobs=[wide, waits], now=1.0)
    gives = qos.decide(state, TEN_MINUTE_EPOCHS)
    assert [(d.job, d.workers) for d in gives.decisions if isinstance(d, Resize)] == [
        ("team/wide", 1)
    ]
    after = carried_out(gives, state)
    again = qos.decide(after, TEN_MINUTE_EPOCHS)
    assert [d for d in again.decisions if isinstance(d, Resize)] == []
    assert again.wake_at <= after.now + 1.0


def test_plans_leave_a_resized_job_its_width_for_two_epochs_if_that_is_in_time() -> None:
    """2 epochs of 150 s on 4 workers, due in 863 s: 1 worker would do, unless it has just grown."""

    def planned(changed_at: float) -> int:
        wide = promised(
            "wide", 863.0, epochs=2, workers=(1, 2, 4), running=4, width_changed_at=changed_at
        )
        state = cluster(gpus=4, jobs=[wide], now=30.0)
        forecasts = Forecasts(state, TEN_MINUTE_EPOCHS)
        claims = claims_of(forecasts.frame, [wide], [833.0])
        room = Room(state, forecasts, claims)
        kept = room.in_order(claims, room.empty_profile(1_000.0))
        assert not kept.late
        return kept.shares["team/wide"].workers_now

    assert planned(changed_at=-1.0) == 1  # as it started
    assert planned(changed_at=0.0) == 4
    assert planned(changed_at=-271.0) == 1  # two epochs of 150 s ago


def test_growth_that_is_due_now_goes_before_growth_that_is_soon_due() -> None:
    """Both need 4 workers, and there are 8 GPUs; the plan has later (less slack) grow a little later."""
    now = 1_000.0
    due = promised("due", now + 2_395.0, epochs=20, workers=WIDTHS, **_runs(2, now - 206.0))
    later = promised("later", now + 2_612.0, epochs=15, workers=WIDTHS, **_runs(2, now - 273.0))
    plan = qos.decide(cluster(gpus=8, jobs=[due, later], now=now), TEN_MINUTE_EPOCHS)
    grows = [d.job for d in plan.decisions if isinstance(d, Resize)]
    assert grows == ["team/due", "team/later"]


def test_a_free_gpu_is_kept_for_growth_whose_other_gpus_are_on_their_way() -> None:
    """8 GPUs, 1 free. first needs 2 more: that one, and those that wide gives at its epoch's end."""
    now = 1_000.0
    jobs = [
        promised("first", now + 2_274.0, epochs=10, workers=(1, 2, 4), **_runs(2, now - 83.0)),
        promised("wide", now + 3_087.0, epochs=7, workers=(1, 2, 4), **_runs(4, now - 119.0)),
        promised("small", now + 4_297.0, epochs=6, workers=(1, 2), **_runs(1, now - 163.0)),
        promised("waits", now + 4_278.0, epochs=10, workers=(1, 2)),
    ]
    plan = qos.decide(cluster(gpus=8, jobs=jobs, now=now), TEN_MINUTE_EPOCHS)
    acted = [(d.job, d.workers) for d in plan.decisions if isinstance(d, Admit | Resize)]
    assert acted == [("team/wide", 2)]


def _runs(width: int, begun_at: float) -> dict[str, Any]:
    return {"running": width, "epoch_started_at": begun_at}


def test_nobody_is_refused_where_all_are_served() -> None:
    """2 GPUs. lost: 600 s of work due in 500 s. It is told so, and starts behind the promised one."""
    lost = job("lost", epochs=10, due_at=500.0)
    state = cluster(gpus=2, jobs=[job("kept", epochs=10, due_at=700.0), lost])
    first = qos.open_to_all(state, MINUTE_EPOCHS)
    told = {
        d.job: type(d) for d in first.decisions if isinstance(d, Promised | Forecasted | Refuse)
    }
    assert told == {"team/kept": Promised, "team/lost": Forecasted}
    again = qos.open_to_all(replace(apply_plan(first, state), now=first.wake_at), MINUTE_EPOCHS)
    assert [d.job for d in again.decisions if isinstance(d, Admit)] == ["team/lost"]
    refused = [d for d in qos.decide(state, MINUTE_EPOCHS).decisions if isinstance(d, Refuse)]
    assert [d.job for d in refused] == ["team/lost"]
