"""Nets that are changed at random, and steps towards those that finish jobs sooner."""

import numpy as np
import pytest

from laxity_lab.policy_training import evolution, training_worlds
from laxity_lab.policy_training.training_worlds import (
    WorldKinds,
    draw_world,
    validate,
    vary_curve,
)
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_scheduler.learned.job_features import FEATURES
from laxity_scheduler.learned.scoring_net import ScoringNet

TABLE = ThroughputTable((1, 2, 4), (1.0, 2.0, 4.0))


def stopping_net() -> ScoringNet:
    """It stops at once, but not by much."""
    column = np.zeros((len(FEATURES), 1))
    column[FEATURES.index("stop")] = 0.05
    return ScoringNet((column,), (np.zeros(1),))


def test_a_net_is_the_same_after_it_was_one_row_of_numbers() -> None:
    net = stopping_net()
    numbers = evolution.flatten(net)
    again = evolution.unflatten(numbers, net)
    assert all(np.array_equal(again.arrays()[name], net.arrays()[name]) for name in net.arrays())
    assert evolution.layer_spread(net).shape == numbers.shape


def test_a_varied_curve_starts_as_measured_and_scales_better_or_worse() -> None:
    worse, better = vary_curve(TABLE, 0.5), vary_curve(TABLE, 1.2)
    assert worse.gpus == better.gpus == TABLE.gpus
    assert worse.speed(1) == better.speed(1) == 1.0
    assert worse.speed(4) == 2.0
    assert better.speed(4) > 4.0


def test_worlds_are_those_of_their_seed() -> None:
    tables = {("m", 1): TABLE}
    first, again = (draw_world(tables, np.random.default_rng(3)) for _ in range(2))
    assert first == again
    assert first != draw_world(tables, np.random.default_rng(4))


@pytest.mark.slow
def test_steps_lead_to_nets_that_finish_jobs_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a net that stops at once, on jobs that scale perfectly; twice the same."""
    monkeypatch.setattr(training_worlds, "ROUNDS_BETWEEN_TRIALS", 4)
    monkeypatch.setattr(evolution, "PAIRS", 4)
    monkeypatch.setattr(evolution, "WORLDS", 1)
    monkeypatch.setattr(evolution, "CHANGE", 2.0)
    monkeypatch.setattr(evolution, "RATE", 1.0)
    monkeypatch.setattr(training_worlds, "VALIDATION_SEEDS", range(1))
    monkeypatch.setattr(training_worlds, "EXPONENTS", (1.0, 1.1))
    tables, start, kinds = {("m", 1): TABLE}, stopping_net(), WorldKinds(jobs=6, exponents=(1.0,))
    best, tried, _ = evolution.evolve(tables, start, seed=1, rounds=8, kinds=kinds)
    assert tried[0] == validate(tables, start, kinds=kinds)
    assert min(tried) == validate(tables, best, kinds=kinds) < 0.9 * tried[0]
    again, *_ = evolution.evolve(tables, start, seed=1, rounds=8, kinds=kinds)
    assert np.array_equal(evolution.flatten(again), evolution.flatten(best))
