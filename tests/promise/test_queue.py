"""Who starts first: deadlines by slack, then soft, then the shortest; and nobody is forgotten."""

from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import Hold, NodeSet
from laxity_scheduler.model.decision import Forecasted, Wait
from laxity_scheduler.model.job import Job, Refusal
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.policies.registry import find
from laxity_scheduler.promising.queueing import build_queue, build_waiting_table
from laxity_scheduler.promising.reservations import Reservations
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promise, promised
from tests.support.plans import started_jobs


def test_the_order_is_promised_aged_soft_hopeless_then_best_effort() -> None:
    soft: dict[str, Any] = {
        "service_class": "soft",
        "asked": False,
        "submitted_at": 500.0,
        "queued_at": 500.0,
    }
    fresh: dict[str, Any] = {"asked": False, "submitted_at": 500.0, "queued_at": 500.0}
    jobs = [
        job("long", epochs=20, **fresh),
        job("short", epochs=2, **fresh),
        job("hopeless", due_at=700.0, **soft),
        job("soft-late", due_at=9000.0, **soft),
        job("soft-soon", due_at=2000.0, **soft),
        job("aged", epochs=1, asked=False, queued_at=0.0, submitted_at=500.0),
        promised("slack", 9000.0, submitted_at=500.0),
        promised("tight", 1500.0, submitted_at=500.0),
    ]
    state = cluster(gpus=8, jobs=jobs, now=700.0)
    forecasts = Forecasts(state, MINUTE_EPOCHS)
    reservations = Reservations(state, forecasts)
    queue = build_queue(build_waiting_table(forecasts), jobs, reservations)
    assert [waiting.job.id.removeprefix("team/") for waiting in queue] == [
        "tight", "slack", "aged", "soft-soon", "soft-late", "hopeless", "short", "long",
    ]  # fmt: skip


def test_what_does_not_fit_is_passed_over() -> None:
    jobs = [job("big", epochs=1, workers=(4,)), job("small", epochs=50)]
    assert started_jobs(decide(cluster(gpus=2, jobs=jobs), MINUTE_EPOCHS)) == ["team/small"]


@pytest.mark.parametrize("policy", ["qos", "fifo"])
def test_a_job_says_which_idle_gpus_take_no_pod_now(policy: str) -> None:
    full = replace(cluster(gpus=1).nodes[0], id="full", free_gpus=0, trouble="disk-pressure")
    kept = replace(full, id="kept", pool="inference")
    state = cluster(gpus=1, jobs=[job("runs", running=1), job("waits", asked=False)], now=60.0)
    plan = find(policy).policy()(replace(state, nodes=(*state.nodes, full, kept)), MINUTE_EPOCHS)

    (wait,) = [one for one in plan.decisions if isinstance(one, Wait)]
    assert wait.reason.text == (
        "it needs 1 GPU (1 per worker); 0 free. Nodes whose idle GPUs take no pod now: full (disk-pressure)"
    )


def test_a_job_says_why_it_waits_and_until_when() -> None:
    jobs = [job("runs", running=1), job("waits", asked=False)]
    plan = decide(cluster(gpus=1, jobs=jobs, now=60.0), MINUTE_EPOCHS)
    (wait,) = [one for one in plan.decisions if isinstance(one, Wait)]
    assert wait.reason.text == "it needs 1 GPU (1 per worker); 0 free"
    assert wait.held_by == ("team/runs",)
    assert wait.expected_start_at == pytest.approx(60.0 + 600.0 - 59.4, abs=1.0)


def test_the_reason_stands_while_others_take_turns_at_holding_what_is_waited_for() -> None:
    """Else each end of a job would be news of every one that waits."""

    def why(holder: str) -> Wait:
        jobs = [job(holder, running=1), job("waits", asked=False)]
        plan = decide(cluster(gpus=1, jobs=jobs, now=60.0), MINUTE_EPOCHS)
        return next(one for one in plan.decisions if isinstance(one, Wait))

    assert why("one").held_by != why("other").held_by
    assert why("one").reason == why("other").reason


def test_free_gpus_that_a_waiting_promise_needs_are_not_given_away() -> None:
    hard = promised("hard", 4000.0, workers=(2,))
    jobs = [job("be", running=3, workers=(3,)), hard, job("b2"), promised("a", 9e4, running=1)]
    plan = decide(cluster(gpus=5, jobs=jobs, now=1.0), MINUTE_EPOCHS)
    assert started_jobs(plan) == []
    waits = {one.job: one for one in plan.decisions if isinstance(one, Wait)}
    assert waits["team/b2"].reason.code == "held_for_promises"
    assert waits["team/b2"].held_by == ("team/hard",), "and not who runs as promised"


def test_a_best_effort_job_uses_gpus_that_are_promised_for_later_if_it_can_stop_in_time() -> None:
    first = promised("first", 700.0, workers=(2,), running=2)
    later = promised("later", 2500.0, workers=(4,), epochs=40)
    busy = [first, later]
    quick, slow = Curve(models={"be": 10.0}), Curve(models={"be": 5000.0})
    state = cluster(gpus=4, jobs=[*busy, job("be", model="be")], now=1.0)
    assert started_jobs(decide(state, quick)) == ["team/be"]
    assert started_jobs(decide(state, slow)) == []


def test_gpus_held_for_one_job_start_no_other() -> None:
    jobs = [job("a", epochs=50), job("b", epochs=1)]
    state = cluster(gpus=1, jobs=jobs, holds=[Hold("team/a", "n0", 1, 60.0)])
    plan = decide(state, MINUTE_EPOCHS)
    assert started_jobs(plan) == ["team/a"]
    assert plan.wake_at <= 60.0


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(None, id="all may use all nodes"),
        pytest.param({"n": NodeSet(frozenset({"n0"}))}, id="some may use some nodes"),
    ],
)
def test_gpus_held_for_a_job_start_it_although_promises_wait_for_one_another(
    sets: dict[str, NodeSet] | None,
) -> None:
    held = job("a", epochs=50, eligible="n" if sets else "")
    runs = promised("runs", 4000.0, running=1, nodes=("n1",))
    jobs = [held, runs, promised("waits", 4000.0, workers=(2,))]
    state = cluster(gpus=[1, 1], jobs=jobs, holds=[Hold("team/a", "n0", 1, 60.0)], sets=sets)
    assert started_jobs(decide(state, MINUTE_EPOCHS)) == ["team/a"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"pinned": True}, id="pinned"),
        pytest.param({"terminating_workers": 1}, id="its pods are not gone"),
        pytest.param({"verdict": Refusal(promise(1.0).reason), "asked": False}, id="refused"),
    ],
)
def test_it_does_not_start_what_is(fields: dict[str, Any]) -> None:
    assert started_jobs(decide(cluster(gpus=1, jobs=[job("a", **fields)]), MINUTE_EPOCHS)) == []


def test_a_forecast_counts_the_time_until_it_starts() -> None:
    jobs = [job("runs", running=1, epochs=10), job("waits", epochs=5)]
    plan = decide(cluster(gpus=1, jobs=jobs), MINUTE_EPOCHS)
    told = {one.job: one.forecast for one in plan.decisions if isinstance(one, Forecasted)}
    assert told["team/waits"].p90_at == pytest.approx(600.0 + 300.0)


def test_a_soft_job_is_told_at_once_when_it_turns_late() -> None:
    soft = job("soft", due_at=400.0, service_class="soft", epochs=5)
    state = cluster(gpus=1, jobs=[soft])
    after = apply_plan(decide(state, MINUTE_EPOCHS), state)
    begun = replace(after.jobs[0], formed=1, epoch_started_at=150.0)
    again = cluster(gpus=1, jobs=[begun], now=150.0)
    told = [one for one in decide(again, MINUTE_EPOCHS).decisions if isinstance(one, Forecasted)]
    assert [one.forecast.late_by_s for one in told] == [50.0]


def test_a_waiting_job_is_told_anew_when_its_start_moves_behind_its_told_finish() -> None:
    runs, waits = job("runs", running=1, epochs=10), job("waits", epochs=5)
    state = cluster(gpus=1, jobs=[runs, waits])
    told = apply_plan(decide(state, MINUTE_EPOCHS), state)
    short, long = (
        job(name, due_at=9000.0, service_class="soft", epochs=epochs)
        for name, epochs in (("short", 3), ("long", 20))
    )

    def forecasts_beside(ahead: Job) -> dict[str, float]:
        plan = decide(replace(told, jobs=(*told.jobs, ahead)), MINUTE_EPOCHS)
        return {d.job: d.forecast.p90_at for d in plan.decisions if isinstance(d, Forecasted)}

    # "long" starts as soon as the first epoch of "runs" is done
    assert forecasts_beside(long)["team/waits"] == pytest.approx(60.0 + 1200.0 + 300.0, abs=1.0)
    assert "team/waits" not in forecasts_beside(short), "it may still be so"


def test_a_job_without_widths_that_fit_starts_when_they_do() -> None:
    jobs = [job("a", workers=(2, 3), gpus_per_worker=2)]
    assert started_jobs(decide(cluster(gpus=[3, 3], jobs=jobs), MINUTE_EPOCHS)) == ["team/a"]
    assert started_jobs(decide(cluster(gpus=[3, 1], jobs=jobs), MINUTE_EPOCHS)) == []


def test_free_gpus_that_no_promise_needs_are_said_to_be_too_scattered() -> None:
    wide = job("wide", epochs=1, gpus_per_worker=2, workers=(1,))
    state = cluster(
        gpus=(1, 1, 2),
        jobs=[job("busy", gpus_per_worker=2, workers=(1,), running=1, nodes=("n2",)), wide],
    )
    (wait,) = [d for d in decide(state, MINUTE_EPOCHS).decisions if isinstance(d, Wait)]
    assert wait.reason.code == "no_free_gpus"
    assert "2 free" in wait.reason.text


def test_a_gpu_that_is_kept_for_another_is_not_told_as_free() -> None:
    """For one that is due first and waits until a second GPU is free."""
    jobs = [
        job("ends", running=1, epochs=2, preemptible=False),
        promised("first", 1200.0, epochs=5, workers=(2,)),
        promised("second", 9000.0, epochs=20),
    ]
    state = cluster(gpus=2, jobs=jobs)

    plan = decide(state, MINUTE_EPOCHS)

    waits = {d.job: d for d in plan.decisions if isinstance(d, Wait)}
    assert waits["team/second"].reason.text == "it needs 1 GPU (1 per worker); 0 free"
