"""Nobody is stopped for GPUs that are on their way, and nobody else takes what they will complete."""

from dataclasses import replace
from typing import Any

import pytest

from laxity_scheduler.model.cluster import ClusterState, Hold
from laxity_scheduler.model.decision import Admit, Preempt, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.policies import qos
from tests.support.builders import Curve, cluster, job, promised

NOW = 1_200.0
TRUTH = Curve(epoch_s=60.0, stop_s=5.0)
BEGUN: dict[str, Any] = {"epoch_started_at": NOW - 10.0}


def acted(state: ClusterState) -> list[tuple[str, str, str]]:
    """Who is started, stopped or resized, and for whom."""
    return [
        (type(one).__name__, one.job, getattr(one, "beneficiary", ""))
        for one in qos.decide(state, TRUTH).decisions
        if isinstance(one, Admit | Preempt | Resize)
    ]


def kept(many: int) -> list[Job]:
    """Promised jobs of one GPU that have plenty of time, so that they might be stopped."""
    return [promised(f"kept{n}", NOW + 9e3, epochs=20, running=1, **BEGUN) for n in range(many)]


def urgent(name: str = "urgent", **fields: Any) -> Job:
    """A promise that cannot wait: 600 s of work, due in 700 s."""
    return promised(name, NOW + 700.0, epochs=10, **fields)


def going(name: str = "going", width: int = 1, **fields: Any) -> Job:
    """A best-effort job that runs."""
    given: dict[str, Any] = {"workers": tuple(range(1, width + 1)), "epochs": 50} | BEGUN | fields
    return job(name, running=width, verdict=None, **given)


def stopping(whom: str, width: int = 1) -> Job:
    return going(width=width, stop_requested_at=NOW - 1.0, stop_for=whom)


def test_without_anything_on_its_way_one_promised_job_makes_way() -> None:
    state = cluster(gpus=6, jobs=[*kept(6), urgent()], now=NOW)
    assert [(kind, whom) for kind, _, whom in acted(state)] == [("Preempt", "team/urgent")]


@pytest.mark.parametrize(
    "coming",
    [
        pytest.param(stopping("team/urgent"), id="stopping for it"),
        pytest.param(stopping(""), id="stopping for nobody"),
        pytest.param(stopping("team/gone"), id="stopping for one that has ended"),
        pytest.param(going(width=2, resize_to=1), id="shrinking"),
        pytest.param(job("going", epochs=50, terminating_workers=1), id="terminating"),
    ],
)
def test_no_promised_job_is_stopped_for_a_gpu_that_is_on_its_way(coming: Job) -> None:
    """All GPUs are busy; six promised jobs have plenty of time, and one GPU comes free."""
    busy = 6 + coming.workers + coming.terminating_workers
    state = cluster(gpus=busy, jobs=[*kept(6), coming, urgent()], now=NOW)
    nodes = (replace(state.nodes[0], free_gpus=0),)
    assert acted(replace(state, nodes=nodes)) == []


def test_no_promised_job_is_stopped_for_gpus_that_are_held_but_not_free_yet() -> None:
    gone = job("gone", epochs=50, terminating_workers=1)
    held = [Hold("team/urgent", "n0", 1, NOW + 600.0)]
    state = cluster(gpus=7, jobs=[*kept(6), gone, urgent()], now=NOW, holds=held)
    nodes = (replace(state.nodes[0], free_gpus=0),)
    assert acted(replace(state, nodes=nodes)) == []


def test_what_a_stopped_job_frees_beyond_the_need_is_for_who_waits_next() -> None:
    """Two GPUs come free for the first, which needs one: nobody is stopped for the second."""
    jobs = [*kept(5), stopping("team/first", 2), urgent("first"), urgent("second")]
    assert acted(cluster(gpus=7, jobs=jobs, now=NOW)) == []


def test_a_promise_in_danger_grows_by_workers_that_leave_a_shrinking_job() -> None:
    """late needs a second GPU; one leaves the shrinking job, so the other one keeps both."""
    late = promised("late", NOW + 400.0, epochs=10, workers=(1, 2), running=1, **BEGUN)
    other = going("other", 2)
    state = cluster(gpus=5, jobs=[late, going(width=2, resize_to=1), other], now=NOW)
    assert acted(state) == []


def test_no_more_promised_jobs_make_way_than_the_one_they_are_stopped_for_needs() -> None:
    """7 GPUs. first needs the one that terminates; wide needs the other six, soon.

    The six that run and can be in time later make way for wide: none of them for first.
    """
    gone = job("gone", epochs=50, terminating_workers=1)
    first = promised("first", NOW + 700.0, epochs=10)
    wide = promised("wide", NOW + 720.0, epochs=10, workers=(6,))
    running = [promised(f"p{n}", NOW + 2_500.0, epochs=20, running=1, **BEGUN) for n in range(6)]
    state = cluster(gpus=7, jobs=[*running, gone, first, wide], now=NOW)
    state = replace(state, nodes=(replace(state.nodes[0], free_gpus=0),))
    stops = [("Preempt", one.id, "team/wide") for one in running]
    assert sorted(acted(state)) == sorted(stops)


def test_a_free_gpu_that_makes_a_place_with_one_that_comes_is_kept() -> None:
    """big needs 2 GPUs on one node: one is free, the other is being freed for it."""
    big = urgent("big", gpus_per_worker=2)
    state = cluster(gpus=2, jobs=[stopping("team/big"), big, job("tiny", epochs=5)], now=NOW)
    assert acted(state) == []


def test_a_job_asked_for_some_workers_is_asked_for_all_where_a_promise_needs_them() -> None:
    """At its epoch's end all workers leave as well as one of them: big waits for no second epoch."""
    big = urgent("big", gpus_per_worker=2)
    shrinks = going(width=2, resize_to=1)
    state = cluster(gpus=2, jobs=[shrinks, big], now=NOW)
    assert acted(state) == [("Preempt", "team/going", "team/big")]


def test_two_promised_jobs_make_way_for_one_worker_that_needs_both_their_gpus() -> None:
    """Neither alone makes a place; both are in time when they start again behind it."""
    big = urgent("big", gpus_per_worker=2)
    state = cluster(gpus=2, jobs=[*kept(2), big], now=NOW)
    stops = [("Preempt", "team/kept0", "team/big"), ("Preempt", "team/kept1", "team/big")]
    assert sorted(acted(state)) == stops
