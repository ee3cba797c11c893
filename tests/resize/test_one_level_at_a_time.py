"""DRF (algorithms.md 7.3), Optimus (7.5) and Pollux (7.8), one decision each, by hand.

Remaining seconds on w workers are epochs x 60 / speed-up(w).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from laxity_profiler.estimate import Workload
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Preempt, Resize
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies import drf, optimus, pollux
from laxity_scheduler.policies.pollux import _restart_factor
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job


@dataclass(frozen=True)
class Models(Curve):
    """Epoch seconds on one worker and speed-ups, by model; speed-ups not named are linear."""

    by_model: Mapping[str, tuple[float, Mapping[int, float]]] = field(default_factory=dict)

    def one_epoch_s(self, workload: Workload, workers: int) -> float:
        epoch_s, speedup = self.by_model.get(workload.model, (60.0, {}))
        return epoch_s / speedup.get(workers, float(workers))


CONCAVE = Models(by_model={"mlp": (60.0, {2: 1.5, 4: 2.0})})
FLAT = Models(by_model={"flat": (60.0, {2: 1.1, 4: 1.2})})


def widths(policy: Policy, state: ClusterState, predictor: Curve = MINUTE_EPOCHS) -> dict[str, int]:
    """Workers that each job has or is to have."""
    found = {one.id.removeprefix("team/"): one.workers for one in state.jobs}
    for decision in policy(state, predictor).decisions:
        if isinstance(decision, Admit | Resize):
            found[decision.job.removeprefix("team/")] = decision.workers
        elif isinstance(decision, Preempt):
            found[decision.job.removeprefix("team/")] = 0
    return found


def test_drf_gives_the_next_worker_to_the_least_dominant_share() -> None:
    """6 GPUs; a: 1 GPU a worker, b: 2.

    a 1/6, b 2/6 | a is least: 2/6 | both 2/6, a came first: 3/6 | b's 2 GPUs do not fit | a 4/6
    """
    a = job("a", workers=(1, 2, 3, 4))
    b = job("b", workers=(1, 2, 3), gpus_per_worker=2, submitted_at=1.0)
    assert widths(drf.decide, cluster(gpus=6, jobs=[a, b])) == {"a": 4, "b": 1}


def test_drf_gives_nobody_a_second_worker_before_everybody_has_one() -> None:
    jobs = [job(f"j{n}", workers=(1, 2, 4), submitted_at=float(n)) for n in range(4)]
    assert widths(drf.decide, cluster(gpus=3, jobs=jobs)) == {"j0": 1, "j1": 1, "j2": 1, "j3": 0}


def test_drf_takes_back_what_is_more_than_an_equal_share() -> None:
    """4 GPUs, a holds all; b comes: 2/4 each. a is asked to shrink, b starts once it has."""
    a = job("a", workers=(1, 2, 4), running=4)
    b = job("b", workers=(1, 2, 4), submitted_at=1.0)
    assert widths(drf.decide, cluster(gpus=4, jobs=[a, b], now=5.0)) == {"a": 2, "b": 0}


@pytest.mark.parametrize(
    ("gpus", "want"),
    [
        # a: 600, 400, 300 s on 1, 2, 4; b: 1,200, 600 s on 1, 2
        # gains per GPU: a 1->2 200, 2->4 (400 - 300) / 2 = 50; b 1->2 600
        pytest.param(2, {"a": 1, "b": 1}, id="the least width for both"),
        pytest.param(3, {"a": 1, "b": 2}, id="600 s a GPU beat 200"),
        pytest.param(4, {"a": 2, "b": 2}, id="then 200"),
        pytest.param(5, {"a": 2, "b": 2}, id="one GPU is not enough for 2 -> 4"),
        pytest.param(6, {"a": 4, "b": 2}, id="two are"),
    ],
)
def test_optimus_gives_each_gpu_to_the_largest_gain(gpus: int, want: Mapping[str, int]) -> None:
    a = job("a", epochs=10, workers=(1, 2, 4))
    b = job("b", epochs=20, workers=(1, 2), model="linear", submitted_at=1.0)
    assert widths(optimus.decide, cluster(gpus=gpus, jobs=[a, b]), CONCAVE) == want


def test_a_fall_of_the_curve_does_not_hide_a_later_rise() -> None:
    """600 s on 1, 667 s on 2 (0.9 x), 300 s on 4: the gain of 1 -> 4 is (600 - 300) / 3 = 100."""
    state = cluster(gpus=4, jobs=[job(epochs=10, workers=(1, 2, 4))])
    assert widths(optimus.decide, state, Curve(speedup={2: 0.9, 4: 2.0})) == {"a": 4}


@pytest.mark.parametrize(
    ("stop_s", "want"),
    [
        # 1 -> 2 saves 600 - 300 = 300 s; re-forming takes as long as a checkpoint
        pytest.param(299.0, 2, id="one second is gained"),
        pytest.param(301.0, 1, id="one second would be lost"),
    ],
)
def test_optimus_counts_what_a_change_costs(stop_s: float, want: int) -> None:
    state = cluster(gpus=2, jobs=[job(epochs=10, workers=(1, 2), running=1)], now=5.0)
    assert widths(optimus.decide, state, Curve(stop_s=stop_s)) == {"a": want}


@pytest.mark.parametrize(
    ("gpus", "want"),
    [
        # fair share: 4 / 2 = 2 GPUs; 1 / speed-up on 1, 2, 4: a 2, 1, 0.5; b 1.1, 1, 0.917
        # gains: a 1->2 1.0, 2->4 (1 - 0.5) / 2 = 0.25; b 1->2 0.1, 2->4 (1 - 0.917) / 2 = 0.042
        pytest.param(3, {"a": 2, "b": 1}, id="1.0 before 0.1"),
        pytest.param(4, {"a": 2, "b": 2}, id="2 -> 4 does not fit: 0.1"),
        # 6 / 2 = 3, so both are compared with their width of 2
        pytest.param(5, {"a": 4, "b": 1}, id="0.25 before 0.1"),
        pytest.param(6, {"a": 4, "b": 2}, id="then 0.1"),
        pytest.param(8, {"a": 4, "b": 4}, id="and 0.042"),
    ],
)
def test_pollux_lowers_the_sum_of_reciprocal_speed_ups(gpus: int, want: Mapping[str, int]) -> None:
    a = job("a", epochs=10, workers=(1, 2, 4))
    b = job("b", epochs=10, workers=(1, 2, 4), model="flat", submitted_at=1.0)
    assert widths(pollux.decide, cluster(gpus=gpus, jobs=[a, b]), FLAT) == want


@pytest.mark.parametrize(
    ("age_s", "restarts", "want"),
    [
        pytest.param(600.0, 0, 600.0 / 630.0, id="600 / 630"),
        pytest.param(600.0, 1, 570.0 / 630.0, id="a restart counts for 30 s"),
        pytest.param(30.0, 1, 0.05, id="nothing is left: the least factor"),
    ],
)
def test_the_restart_factor_of_pollux(age_s: float, restarts: int, want: float) -> None:
    runs = job(running=1, submitted_at=0.0, preemptions=restarts)
    assert _restart_factor(runs, age_s) == pytest.approx(want)


def test_pollux_leaves_a_young_job_as_it_is_where_little_is_gained() -> None:
    """b has 1 of 3 GPUs, its fair share (3 / 2, rounded down), and 1 is free.

    On 2 it would be 1.1 x as fast, but at the age of 30 s the restart factor is 30 / 60: the
    reciprocal speed-up would rise from 1 to 1 / (1.1 x 0.5) = 1.82. At 3,000 s it is 3,000 / 3,030,
    and falls to 1 / (1.1 x 0.99) = 0.918.
    """

    def after(age_s: float) -> dict[str, int]:
        a = job("a", workers=(1,), running=1)
        b = job("b", workers=(1, 2), model="flat", running=1, submitted_at=0.0)
        return widths(pollux.decide, cluster(gpus=3, jobs=[a, b], now=age_s), FLAT)

    assert after(30.0)["b"] == 1
    assert after(3_000.0)["b"] == 2
