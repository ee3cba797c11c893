"""A P90 that holds in 90 % of cases: how wrong predictions were decides how wide the next ones are.

A finished stretch of training has the score ((r - 1/r) / 2) / sigma, where r = actual / predicted
and sigma is the relative error that was expected (epoch noise and model error). The quantile of
past scores is the next factor on sigma (conformal prediction), with the finite-sample correction
(n + 1) p. (r - 1/r) / 2 is near log r, and its inverse x + sqrt(1 + x^2) needs no library function
whose last bit differs between machines, so a journal replays byte for byte.

While there are few scores, those of a normal distribution stand in: the runs that gave the scores
gave sigma, too. Recent scores weigh more, and
a level that missed too often in live use is raised (adaptive conformal inference: Gibbs and Candes
2021). Its step is what followed drifting levels best on drawn worlds of one set of seeds, and was
judged on others: docs/prediction.md.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats

P10: Final = 0.1
P50: Final = 0.5
P90: Final = 0.9
NORMAL_90: Final = 1.2815515655446004
ENOUGH: Final = 25  # scores; with fewer, assumed ones fill up
ASSUMED_WEIGHT: Final = 8.0
HALF_LIFE: Final = 400.0  # in scores
STEP: Final = 0.03
LEVELS: Final = (0.8, 0.985)
_Z2: Final = 1.959963984540054**2
# Normal quantiles at (i - 1/2) / 16
ASSUMED: Final = (
    -1.862731867421652, -1.318010897303537, -1.009990169249582, -0.776421761147928,
    -0.579132162255556, -0.402250065321725, -0.237202109328788, -0.078412412733112,
    0.078412412733112, 0.237202109328788, 0.402250065321725, 0.579132162255556,
    0.776421761147928, 1.009990169249582, 1.318010897303537, 1.862731867421652,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Factors:
    """What sigma is multiplied by for each quantile."""

    z10: float = -NORMAL_90
    z50: float = 0.0
    z90: float = NORMAL_90


NORMAL: Final = Factors()


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of actual times at or below a predicted quantile, of n."""

    stage: str
    n: int
    p10: float
    p50: float
    p90: float


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n."""
    if n == 0:
        return 0.0, 1.0
    middle = (share + _Z2 / (2 * n)) / (1 + _Z2 / n)
    spread = share * (1 - share) / n + _Z2 / (4 * n**2)
    half = math.sqrt(_Z2 * spread) / (1 + _Z2 / n)
    return middle - half, middle + half


def miss_score(actual: float, predicted: float, sigma: float) -> float:
    """How many sigmas the actual time lay above the predicted one."""
    ratio = actual / predicted
    return (ratio - 1.0 / ratio) / 2.0 / sigma


def factor_at(x: Floats) -> Floats:
    """The inverse of the score's curve: a positive factor that grows with x; shape kept."""
    root = np.sqrt(1.0 + x * x)
    below = 1.0 / (root - np.minimum(x, 0.0))  # the same, and never 0
    return np.asarray(np.where(x < 0.0, below, x + root))


def factor_of(x: float) -> float:
    """`factor_at` of one number that is not negative."""
    return x + math.sqrt(1.0 + x * x)


def factors_of_scores(scores: Sequence[float], *, level: float = P90) -> Factors:
    """Factors from scores, oldest first; `level` is that of the P90, adapted to live misses."""
    z10, z50, z90 = score_quantiles(scores, (1.0 - level, P50, level))
    return Factors(z10, z50, z90)


def widen_for_few(freedom: int) -> float:
    """By how much P90 is wider where the spread is known from so few differences between runs.

    Student's t asks for 1 + 0.7 / (freedom - 0.5), within 0.6 %. It is a little less, since the noise
    of epochs bounds the spread from below: on drawn runs P90 then holds where runs differ and where
    they do not.
    """
    return 1.0 + 0.5 / (freedom - 0.5)


def score_quantiles(scores: Sequence[float], levels: Sequence[float]) -> tuple[float, ...]:
    """Weighted quantiles at (n + 1) p, with assumed scores while there are few."""
    values = np.asarray(scores, dtype=np.float64)
    age = np.arange(len(values) - 1, -1, -1, dtype=np.float64)
    known = min(1.0, len(values) / ENOUGH)
    weights = known * 0.5 ** (age / HALF_LIFE)
    missing = ASSUMED_WEIGHT * (1.0 - known)
    if missing > 0.0:
        values = np.concatenate([values, ASSUMED])
        weights = np.concatenate([weights, np.full(len(ASSUMED), missing / len(ASSUMED))])
    order = np.argsort(values, kind="stable")
    places = np.cumsum(weights[order])
    total = places[-1] + known * weights.max(initial=0.0)
    places = (places - 0.5 * (1.0 - known) * weights[order]) / total  # assumed: middles of 16ths
    return tuple(float(value) for value in np.interp(levels, places, values[order]))


def adapt_level(hits: Iterable[bool]) -> float:
    """The level to use for a P90, after live finishes (oldest first) that kept it or did not."""
    level = P90
    for hit in hits:
        level = min(LEVELS[1], max(LEVELS[0], level + STEP * (P90 - hit)))
    return level


def measure_coverage(
    rows: Iterable[tuple[str, float, float, float, float]],
) -> tuple[Coverage, ...]:
    """Coverage by stage, of (stage, p10, p50, p90, actual) in seconds."""
    by_stage: dict[str, list[tuple[bool, bool, bool]]] = {}
    for stage, p10, p50, p90, actual in rows:
        by_stage.setdefault(stage, []).append((actual <= p10, actual <= p50, actual <= p90))
    return tuple(
        Coverage(stage, len(held), *(sum(column) / len(held) for column in zip(*held, strict=True)))
        for stage, held in sorted(by_stage.items())
    )
