"""A level that moves from run to run: how fast, learned from how equal runs differed, and where it is.

    m_t = L_t (1 + e_t)       e_t: relative variance v_t = spread^2 + noise^2 / epochs
    L_t = L_t-1 (1 + d_t)     d_t: relative variance q

The local level model of structural time series (Harvey 1989, ch. 2): a machine that others load, a
dataset that grows. The variances are those of the greatest likelihood on a grid, over all sequences
of a model together; a level that stands still (q = 0) is given up only where a moving one explains
the runs clearly better.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

CLEARLY: Final = 2.0  # log-likelihood: so much better a moving level must be
SHARES: Final = (0.02, 0.05, 0.12, 0.3, 0.8, 2.0)  # q, of the variance between runs
SCALES: Final = (0.1, 0.2, 0.35, 0.6, 1.0)  # variance between runs, of what it seems with q = 0
LEAST_RUNS: Final = 8  # of one sequence: with fewer nothing is said of drift
LATEST: Final = 100


@dataclass(frozen=True, slots=True)
class Drift:
    """Relative variance between runs, and of the step of the level from one run to the next."""

    spread2: float
    step2: float = 0.0


@dataclass(frozen=True, slots=True)
class LevelEstimate:
    """What is known of the level before a run: its mean in seconds, its relative variance."""

    level_s: float
    error2: float


# (mean seconds of an epoch, epochs) of each run, oldest first
Sequences = Sequence[Sequence[tuple[float, int]]]


def drift_of(sequences: Sequences, *, spread2: float, noise2: float) -> Drift:
    """`spread2` is the variance between runs as it seems if the level stands still."""
    long_sequences = [runs[-LATEST:] for runs in sequences if len(runs) >= LEAST_RUNS]
    still = Drift(spread2)
    if not long_sequences:
        return still
    best = still
    likelihood = CLEARLY + sum(_log_likelihood(runs, still, noise2) for runs in long_sequences)
    for scale in SCALES:
        for share in SHARES:
            moving = Drift(spread2 * scale, spread2 * scale * share)
            log_likelihood = sum(_log_likelihood(runs, moving, noise2) for runs in long_sequences)
            if log_likelihood > likelihood:
                best, likelihood = moving, log_likelihood
    return best


def places(
    runs: Sequence[tuple[float, int]], drift: Drift, noise2: float
) -> Iterator[LevelEstimate]:
    """Before each run but the first, from those before it; at last before the run to come."""
    level_s, error2 = runs[0][0], drift.spread2 + noise2 / runs[0][1]
    for index in range(len(runs)):
        error2 += drift.step2
        yield LevelEstimate(level_s, error2)
        if index + 1 < len(runs):
            mean_s, epochs = runs[index + 1]
            gain = error2 / (error2 + drift.spread2 + noise2 / epochs)
            level_s += gain * (mean_s - level_s)
            error2 *= 1.0 - gain


def _log_likelihood(runs: Sequence[tuple[float, int]], drift: Drift, noise2: float) -> float:
    """Logarithm, of each run after the first given those before it."""
    log_likelihood = 0.0
    for place, (mean_s, epochs) in zip(places(runs, drift, noise2), runs[1:], strict=False):
        variance = place.error2 + drift.spread2 + noise2 / epochs
        off = math.log(mean_s / place.level_s)
        log_likelihood -= 0.5 * (math.log(variance) + off * off / variance)
    return log_likelihood
