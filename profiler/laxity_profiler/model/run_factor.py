"""What a job's own epochs say about the rest of it, weighed against what its model's history says.

A run differs from its model's level by a factor u of its own (other parameters, another node), with
relative variance `spread2`; each epoch adds noise with variance `noise2`. After k epochs with mean
ratio m to the level, the best guess of u and what is left of its variance are

    u = 1 - gain + gain * m    gain = prior2 / (prior2 + noise2 / k)      left2 = prior2 * (1 - gain)

If the ratios jump (a node became slower), only those after the jump count; a prior that is off by
more than it allows for is not believed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

JUMP: Final = 4.0  # standard errors between the means before and after
NOISE_POINTS: Final = 10.0  # how many own epochs the model's noise is worth
SURPRISE: Final = 2.0  # standard errors off; beyond that the prior is not believed


@dataclass(frozen=True, slots=True)
class Belief:
    """A factor on the model's level, its relative variance, and the share own epochs have in it."""

    factor: float
    left2: float
    gain: float
    noise2: float
    n: int


def update_belief(belief: Belief, ratios: Sequence[float]) -> Belief:
    """The belief after these ratios of observed to expected epoch time, oldest first."""
    recent = ratios[last_jump(ratios, belief.noise2) :]
    n = len(recent)
    if n == 0:
        return belief
    mean = sum(recent) / n
    noise2 = _epoch_noise2(recent, mean, belief)
    error2 = mean * mean * noise2 / n
    scale2 = belief.factor * belief.factor
    off = mean - belief.factor
    prior2 = scale2 * belief.left2
    if off * off > SURPRISE * SURPRISE * (prior2 + error2):
        prior2 = off * off
    gain = prior2 / (prior2 + error2) if prior2 + error2 > 0.0 else 1.0
    middle = (1.0 - gain) * belief.factor + gain * mean  # between the two, so never 0
    left2 = prior2 * (1.0 - gain) / (middle * middle)
    return Belief(middle, left2, belief.gain + (1.0 - belief.gain) * gain, noise2, belief.n + n)


def _epoch_noise2(ratios: Sequence[float], mean: float, belief: Belief) -> float:
    """Relative variance of one epoch: the model's, corrected by what these epochs show."""
    squares = sum((ratio - mean) ** 2 for ratio in ratios) / (mean * mean)
    return (NOISE_POINTS * belief.noise2 + squares) / (NOISE_POINTS + len(ratios) - 1)


def last_jump(ratios: Sequence[float], noise2: float) -> int:
    """Where the values that still count begin: after the clearest jump, if there is one."""
    n = len(ratios)
    if n < 4:
        return 0
    best, start = JUMP, 0
    total = sum(ratios)
    steps2 = sum((after - first) ** 2 for first, after in pairwise(ratios)) / (2 * (n - 1))
    noise2 = max(noise2, steps2 * n * n / (total * total))
    before = 0.0
    for index in range(1, n - 1):
        before += ratios[index - 1]
        if index < 2:
            continue
        left, right = before / index, (total - before) / (n - index)
        error = math.sqrt(noise2 * (1.0 / index + 1.0 / (n - index))) * min(left, right)
        if error > 0.0 and abs(right - left) / error > best:
            best, start = abs(right - left) / error, index
    return start
