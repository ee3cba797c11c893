"""SRTF (algorithms.md 7.1) and Tiresias' two-dimensional LAS (7.4), one decision each, by hand."""

from typing import Any

import pytest

from laxity_scheduler.model.decision import Admit, Preempt
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies import las, srtf
from tests.support.builders import MINUTE_EPOCHS, cluster, job

NOW = 10_000.0


def stopped_for(plan: Plan) -> dict[str, str]:
    return {d.job: d.beneficiary for d in plan.decisions if isinstance(d, Preempt)}


def started(plan: Plan) -> list[str]:
    return [d.job for d in plan.decisions if isinstance(d, Admit)]


def held(name: str, gpus: int, *, attained_gpu_s: float, for_s: float, **fields: Any) -> Job:
    """Runs on so many GPUs; `attained_gpu_s` before the last `for_s` seconds."""
    return job(
        name,
        epochs=1_000,
        workers=(gpus,),
        running=gpus,
        attained_gpu_s=attained_gpu_s,
        since=NOW - for_s,
        resumed_at=NOW - for_s,
        **fields,
    )


@pytest.mark.parametrize(
    ("epochs", "stops"),
    [
        # the running job has 10 epochs left and is 30 s into one: 10 x 60 - 30 = 570 s
        pytest.param(9, True, id="540 s are less than 570 s"),
        pytest.param(10, False, id="600 s are more than 570 s"),
    ],
)
def test_srtf_counts_what_is_done_of_the_running_epoch(epochs: int, *, stops: bool) -> None:
    runs = job("runs", epochs=12, done=2, running=1, epoch_started_at=NOW - 30.0)
    state = cluster(gpus=1, jobs=[runs, job("new", epochs=epochs)], now=NOW)
    plan = srtf.decide(state, MINUTE_EPOCHS)
    assert stopped_for(plan) == ({"team/runs": "team/new"} if stops else {})


def test_srtf_stops_the_longest_first_and_only_as_many_as_are_needed() -> None:
    """3 GPUs, three run 600, 1,200 and 1,800 s; a job of 60 s on 2 GPUs needs two of them."""
    jobs = [job(f"r{n}", epochs=10 * n, running=1, epoch_started_at=NOW) for n in (1, 2, 3)]
    new = job("new", epochs=2, workers=(2,), submitted_at=NOW)
    plan = srtf.decide(cluster(gpus=3, jobs=[*jobs, new], now=NOW), MINUTE_EPOCHS)
    assert list(stopped_for(plan)) == ["team/r3", "team/r2"]


@pytest.mark.parametrize(
    ("attained_gpu_s", "for_s", "stops"),
    [
        # one GPU: attained + 1 x for_s against the first threshold of 3,250 GPU-s
        pytest.param(3_000.0, 200.0, False, id="3,200: the first queue, and it came first"),
        pytest.param(3_000.0, 250.0, True, id="3,250: the second queue"),
        pytest.param(0.0, 3_300.0, True, id="3,300 at one go"),
    ],
)
def test_a_job_leaves_its_queue_at_the_threshold(
    attained_gpu_s: float, for_s: float, *, stops: bool
) -> None:
    old = held("old", 1, attained_gpu_s=attained_gpu_s, for_s=for_s)
    new = job("new", submitted_at=NOW)
    plan = las.decide(cluster(gpus=1, jobs=[old, new], now=NOW), MINUTE_EPOCHS)
    assert stopped_for(plan) == ({"team/old": "team/new"} if stops else {})


def test_service_is_gpus_times_time() -> None:
    """Two for 1,000 s have 2,000 GPU-s, one for 1,900 s has 1,900: both in the first queue.

    Four for 1,000 s have 4,000 and are in the second: they make way.
    """
    two = held("two", 2, attained_gpu_s=0.0, for_s=1_000.0)
    four = held("four", 4, attained_gpu_s=0.0, for_s=1_000.0)
    one = held("one", 1, attained_gpu_s=0.0, for_s=1_900.0)
    new = job("new", workers=(3,), submitted_at=NOW)
    plan = las.decide(cluster(gpus=7, jobs=[two, four, one, new], now=NOW), MINUTE_EPOCHS)
    assert stopped_for(plan) == {"team/four": "team/new"}


def test_within_a_queue_the_first_submitted_goes_first() -> None:
    """Queue 0: b (500 GPU-s, submitted at 1) before c (none, at 2); a is in queue 1 since 3,250."""
    jobs = [
        job("a", attained_gpu_s=3_250.0, submitted_at=0.0),
        job("b", attained_gpu_s=500.0, submitted_at=1.0),
        job("c", submitted_at=2.0),
    ]
    plan = las.decide(cluster(gpus=2, jobs=jobs, now=NOW), MINUTE_EPOCHS)
    assert started(plan) == ["team/b", "team/c"]


def test_las_wakes_when_the_first_running_job_leaves_its_queue() -> None:
    """2 GPUs with 3,000 GPU-s: 250 are left, 125 s. 1 GPU with 57,500: 100 are left, 100 s."""
    fast = held("fast", 2, attained_gpu_s=3_000.0, for_s=0.0)
    slow = held("slow", 1, attained_gpu_s=57_500.0, for_s=0.0)
    waits = job("waits", workers=(4,), submitted_at=NOW)
    plan = las.decide(cluster(gpus=4, jobs=[fast, slow, waits], now=NOW), MINUTE_EPOCHS)
    assert plan.wake_at == pytest.approx(NOW + 100.0)
