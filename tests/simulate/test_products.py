"""Simulated GPUs of two products: a job is as fast as those that it is on, and told so."""

from functools import partial

import pytest

from laxity_lab.simulate.replay import replay
from laxity_lab.simulate.run import Setting, open_world
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_profiler.estimate import NO_PROGRESS, Progress, Workload
from laxity_profiler.model.products import ProductFactor
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.ground_truth import GroundTruth
from studies.product_study import (
    BELIEFS,
    FAST,
    SLOW,
    BelievingPredictor,
    DrawnJob,
    decide_on_one_kind,
)

PRODUCTS = {"node-0": SLOW, "node-1": FAST}
SETTING = Setting("qos", 2, 1, cost_model="free", literal_cycle=True)
POLICY = find("qos").policy()


def truth(name: str, *, epochs: int = 10, due_at: float) -> GroundTruth:
    """An epoch takes 100 s on the slow product, 25 s on the fast one."""
    slow, fast = {1: 100.0}, {1: 25.0}
    return GroundTruth(
        name, 0, 0.0, epochs, (1,), slow, deadline_at=due_at, service_class="hard",
        workload=Workload(name, epochs), epoch_s_on={SLOW: slow, FAST: fast},
    )  # fmt: skip


def finishes(*jobs: GroundTruth) -> dict[str, float]:
    world = open_world(SETTING, jobs, products=PRODUCTS)
    replay(world, POLICY, NoisyPredictor(jobs, world.costs))
    return {name: ended_at for name, (_, ended_at) in world.finished.items()}


def test_a_job_ends_when_its_product_lets_it() -> None:
    assert finishes(truth("team/tight", due_at=300.0), truth("team/loose", due_at=1500.0)) == {
        "team/tight": pytest.approx(250.0),
        "team/loose": pytest.approx(1000.0),
    }


def test_a_job_on_both_products_is_as_fast_as_the_slower() -> None:
    wide = {1: 100.0, 2: 50.0}, {1: 25.0, 2: 12.5}
    job = GroundTruth(
        "team/wide", 0, 0.0, 10, (2,), wide[0], workload=Workload("team/wide", 10),
        epoch_s_on=dict(zip((SLOW, FAST), wide, strict=True)),
    )  # fmt: skip
    world = open_world(SETTING, [job], products=PRODUCTS)
    believed = BELIEFS["as fast"]([DrawnJob(job, ProductFactor())])
    replay(world, partial(decide_on_one_kind, POLICY), BelievingPredictor(believed, world.costs))
    assert world.finished["team/wide"][1] == pytest.approx(500.0)


def test_a_belief_in_one_kind_is_corrected_by_own_epochs() -> None:
    job = truth("team/a", due_at=1e6)
    believed = BELIEFS["as fast"]([DrawnJob(job, ProductFactor())])
    predictor = BelievingPredictor(believed, SETTING.costs)
    work = Workload("team/a", 10)
    assert predictor.remaining(work, NO_PROGRESS, 1).p50_s == pytest.approx(250.0)
    own = Progress(3, (100.0,) * 3, (1,) * 3)
    assert predictor.remaining(work, own, 1).p50_s == pytest.approx(7 * 25.0 * 4.0**0.75)


def test_between_two_products_p90_allows_for_either() -> None:
    job = truth("team/a", due_at=1e6)
    (belief,) = BELIEFS["as one"]([DrawnJob(job, ProductFactor())])
    there = BelievingPredictor([belief], SETTING.costs).epoch_time(Workload("team/a", 10), 1)
    assert there.p50_s == pytest.approx(50.0)
    assert there.p10_s < 25.0
    assert there.p90_s > 100.0


def test_a_factor_from_other_models_is_wider_than_own_runs() -> None:
    job = DrawnJob(truth("team/a", due_at=1e6), ProductFactor(0.3, 0.8, 4))
    (belief,) = BELIEFS["by factor"]([job])
    predictor = BelievingPredictor([belief], SETTING.costs)
    slow, fast = (
        predictor.epoch_time(Workload("team/a", 10, gpu_type=one), 1) for one in (SLOW, FAST)
    )
    assert (slow.p50_s, slow.p90_s) == (100.0, 100.0)
    assert fast.p50_s == pytest.approx(30.0)
    assert fast.p90_s > 1.5 * fast.p50_s
