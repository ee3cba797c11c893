"""How long all work takes (`drain`), and that PickyMan leaves no long job to the end of it."""

from dataclasses import replace

import numpy as np
import pytest

from laxity_lab.simulate.report import report
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.generate import Mix, generate
from laxity_lab.traces.traces import Trace
from laxity_scheduler.allocation.makespan import remaining_makespan_s
from laxity_scheduler.model.decision import Admit, Preempt
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies import pickyman
from tests.support.builders import Curve, cluster, job
from tests.support.victims import NOW, runs

EXACT = Curve(epoch_s=60.0)
COSTLY = Curve(epoch_s=60.0, start_s=30.0, stop_s=5.0)
BATCH = Mix(
    jobs=100,
    jobs_per_hour=100.0,
    median_s=1_800.0,
    asked=(1, 2, 4),
    levels=(1, 2, 4),
    best_effort=1.0,
)


def started(plan: Plan) -> list[str]:
    return [d.job.removeprefix("team/") for d in plan.decisions if isinstance(d, Admit)]


def test_work_that_comes_slows_the_drain_and_where_it_takes_all_gpus_there_is_no_end() -> None:
    """Six jobs of 1,000 GPU-s on 4 GPUs. 4,000 GPU-s came in 8,000, 2,000 or 1,000 s."""
    for since_s, end_s in ((8_000.0, 6_000 / 3.5), (2_000.0, 6_000 / 2), (1_000.0, FOREVER)):
        jobs = [job(f"{row}") for row in range(2)]
        jobs += [job(f"{row}", submitted_at=NOW - since_s) for row in range(2, 6)]
        rest_s = {one.id: 1_000.0 for one in jobs}
        state = cluster(gpus=4, jobs=jobs, now=NOW)
        assert remaining_makespan_s(state, rest_s) == pytest.approx(end_s)
        shuffled = replace(state, jobs=state.jobs[::-1])
        assert remaining_makespan_s(shuffled, rest_s) == pytest.approx(end_s)


def test_an_empty_cluster_is_done_and_one_without_gpus_never_is() -> None:
    assert remaining_makespan_s(cluster(gpus=4, jobs=[], now=NOW), {}) == 0.0
    one = job("a")
    assert remaining_makespan_s(cluster(gpus=[], jobs=[one], now=NOW), {one.id: 1.0}) == FOREVER


@pytest.mark.parametrize(
    ("into_s", "first"),
    [
        # 3,000 s and 600 s wait, the running one has 1,020 s less these. Work of 4,614 GPU-s on
        # 2 - 0.4614 GPUs ends in 2,999 s; 4,617 in 3,001 s
        pytest.param(6.0, "long", id="all is done no sooner than the long one"),
        pytest.param(3.0, "short", id="the long one may still wait"),
    ],
)
def test_the_longest_job_goes_first_at_the_latest_instant(into_s: float, first: str) -> None:
    jobs = [runs("r", 17, into_s=into_s), job("long", epochs=50), job("short", epochs=10)]
    plan = pickyman.decide(cluster(gpus=2, jobs=jobs, now=NOW), EXACT)
    assert started(plan) == [first]


def test_of_two_that_decide_the_end_the_longer_goes_first_and_a_deadline_before_both() -> None:
    jobs = [job("a", epochs=40), job("longer", epochs=41), job("short", epochs=1)]
    state = cluster(gpus=[2, 2, 2, 2], jobs=jobs, now=NOW)
    assert started(pickyman.decide(state, EXACT)) == ["longer", "a", "short"]
    due = job("due", epochs=2, due_at=NOW + 9_000.0)
    state = cluster(gpus=[2, 2, 2, 2], jobs=[*jobs, due], now=NOW)
    assert started(pickyman.decide(state, EXACT)) == ["due", "longer", "a", "short"]


@pytest.mark.parametrize(
    ("submitted_at", "starts"),
    [
        # 2 x 3,600 + 285 + 2 x 45 + 60 = 7,635 GPU-s on 4 GPUs, 0.76 or 76 of which work to come takes
        pytest.param(0.0, [], id="a batch"),
        pytest.param(NOW - 100.0, ["short"], id="a queue that others join: it never drains"),
    ],
)
def test_a_wide_job_that_decides_the_end_keeps_free_gpus_where_it_fits_first(
    submitted_at: float, starts: list[str]
) -> None:
    jobs = [
        runs("r", 5, nodes=("n0",)),
        runs("r1", 1, nodes=("n1",)),
        runs("r2", 1, nodes=("n2",)),
        job("wide", epochs=60, gpus_per_worker=2),
        job("short", epochs=1),
    ]
    came = [replace(one, submitted_at=submitted_at) for one in jobs]
    plan = pickyman.decide(cluster(gpus=(2, 1, 1), jobs=came, now=NOW), EXACT)
    assert started(plan) == starts


@pytest.mark.parametrize(
    ("gpus", "epoch_s", "stops"),
    [
        # As in test_pickyman: 585 - 50 s are saved, 35 s and the newcomer's run are caused. On 9
        # GPUs the 1,755 + 3 x 235 GPU-s are done in 281 s, sooner than the victim: twice 35 + run
        pytest.param((3, 2, 2, 2), 200.0, True, id="5 s are gained though it counts twice"),
        pytest.param((3, 2, 2, 2), 205.0, False, id="the end of all is put off by more"),
        pytest.param((3,), 205.0, True, id="the end does not depend on the victim"),
    ],
)
def test_what_a_stop_costs_a_job_that_decides_the_end_counts_twice(
    gpus: tuple[int, ...], epoch_s: float, *, stops: bool
) -> None:
    predictor = replace(COSTLY, models={"new": epoch_s})
    victim = runs("v", 10, gpus_per_worker=3)
    new = job("new", epochs=1, model="new", gpus_per_worker=3)
    plan = pickyman.decide(cluster(gpus=gpus, jobs=[victim, new], now=NOW), predictor)
    assert [d.job for d in plan.decisions if isinstance(d, Preempt)] == ["team/v"] * stops


def test_a_closed_batch_ends_about_as_soon_as_with_fifo_and_waits_less() -> None:
    """Six batches of 100 jobs in about an hour, 16 GPUs: 7 % later than FIFO."""
    ends, waits = [], []
    for seed in range(200, 206):
        trace = generate(BATCH, seed=seed)
        (end_s, wait_s), (fifo_end_s, fifo_wait_s) = (
            figures(trace, policy) for policy in ("pickyman", "fifo")
        )
        ends.append(end_s / fifo_end_s)
        waits.append(wait_s / fifo_wait_s)
    assert np.mean(ends) <= 1.08
    assert np.mean(waits) <= 0.8


def figures(trace: Trace, policy: str) -> tuple[float, float]:
    """Makespan and average waiting time of a batch on 16 GPUs."""
    setting = Setting(policy, 4, 4, cost_model="live", paid_starts=True)
    row = report(simulate(trace, setting))
    end_s, wait_s = row["makespan_s"], row["avg_wait_s"]
    assert isinstance(end_s, float)
    assert isinstance(wait_s, float)
    return end_s, wait_s
