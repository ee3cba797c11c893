"""Improvement by evolution strategies (Salimans et al. 2017, section 2): no gradient, no critic, no torch.

    gain(net) = - mean over worlds of log(mean JCT of the net / mean JCT of the net they came from),
                or by how many fewer deadlines are missed (`compute_gain`)
    step      = mean over pairs of (rank of + less rank of -) x direction, by Adam

Whole worlds are judged, by what is wanted of them: policy gradients judge a slot by itself, and so
miss what a decision does to the jobs that come later (our own choice beside DL2's, algorithms.md 6.6).
Nets are changed in mirrored pairs, by a share of each layer's spread, and all meet the same worlds.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final

import numpy as np

from laxity_lab.policy_training.slot_environment import Reward, run_in_slots
from laxity_lab.policy_training.training_worlds import (
    USUAL,
    Improvement,
    World,
    WorldKinds,
    compute_gain,
    draw_world,
    keep_best,
    validate,
)
from laxity_lab.traces.throughput_tables import Tables
from laxity_profiler.estimate import Floats
from laxity_scheduler.learned.scoring_net import ScoringNet

PAIRS: Final = 12
WORLDS: Final = 3
CHANGE: Final = 0.1  # of a layer's spread, in a trial
RATE: Final = 0.05  # of a layer's spread, in a step
LEAST_SPREAD: Final = 0.01
MOMENTUM, SQUARES = 0.9, 0.99


def evolve(
    tables: Tables,
    start: ScoringNet,
    *,
    seed: int,
    rounds: int,
    reward: Reward = "jct",
    kinds: WorldKinds = USUAL,
    tell: Callable[[int], None] = lambda _: None,
) -> Improvement:
    """The best net of those tried, and what each scored on the validation worlds (`start` first)."""
    steps = _climb(tables, start, np.random.default_rng(seed), reward, kinds)
    return keep_best(start, steps, rounds, lambda net: validate(tables, net, reward, kinds), tell)


def _climb(
    tables: Tables,
    start: ScoringNet,
    draw: np.random.Generator,
    reward: Reward,
    kinds: WorldKinds,
) -> Iterator[tuple[ScoringNet, int]]:
    """The net after each step, and the actions that it took."""
    numbers, spread = flatten(start), layer_spread(start)
    slope, square = np.zeros_like(numbers), np.zeros_like(numbers)
    for number in count(1):
        worlds = [draw_world(tables, draw, reward, kinds) for _ in range(WORLDS)]
        directions = draw.standard_normal((PAIRS, len(numbers)))
        changes = CHANGE * spread * directions
        uphill, taken = _find_uphill(unflatten(numbers, start), changes, worlds, reward)
        step = (uphill[:, None] * directions).mean(axis=0)
        slope = MOMENTUM * slope + (1.0 - MOMENTUM) * step
        square = SQUARES * square + (1.0 - SQUARES) * step**2
        scaled = np.sqrt(square / (1.0 - SQUARES**number)) + 1e-8
        numbers = numbers + RATE * spread * slope / (1.0 - MOMENTUM**number) / scaled
        yield unflatten(numbers, start), taken


def _find_uphill(
    net: ScoringNet, changes: Floats, worlds: Sequence[World], reward: Reward
) -> tuple[Floats, int]:
    """Shape (PAIRS,): how much better the net is with a change than with its mirror image, in ranks.

    And the actions that it took to see it.
    """
    before = [run_in_slots(jobs, gpus, net) for jobs, gpus in worlds]
    numbers, actions = flatten(net), sum(outcome.actions for outcome in before)
    gains = []
    for change in changes:
        for changed in (numbers + change, numbers - change):
            other = unflatten(changed, net)
            after = [run_in_slots(jobs, gpus, other) for jobs, gpus in worlds]
            actions += sum(outcome.actions for outcome in after)
            pairs = zip(after, before, strict=True)
            gains.append(float(np.mean([compute_gain(new, old, reward) for new, old in pairs])))
    ranks = np.sign(np.subtract.outer(gains, gains)).mean(axis=1) / 2.0  # equal ones share theirs
    return np.asarray(ranks[0::2] - ranks[1::2]), actions


def flatten(net: ScoringNet) -> Floats:
    """All weights and biases in one row, (W,)."""
    return np.concatenate([array.ravel() for array in net.arrays().values()])


def unflatten(numbers: Floats, like: ScoringNet) -> ScoringNet:
    """The net of such layers with these weights and biases."""
    arrays, begin = {}, 0
    for name, array in like.arrays().items():
        arrays[name] = numbers[begin : begin + array.size].reshape(array.shape)
        begin += array.size
    return ScoringNet.from_arrays(arrays, like.weights[0].shape[0])


def layer_spread(net: ScoringNet) -> Floats:
    """Shape (W,): the standard deviation of the layer that a number belongs to."""
    return np.concatenate(
        [np.full(array.size, max(LEAST_SPREAD, array.std())) for array in net.arrays().values()]
    )
