"""What a predictor believes of a simulated job: how its error shrinks with what it has seen.

A job's epochs are believed to take `factor` times what they take, drawn from exp(sigma z). Once k of
them have been observed, the logarithm of the error has shrunk to 1 / (1 + k) of it. The quantiles
are those of this distribution.
"""

import math
from typing import Final

from laxity_profiler.estimate import Estimate
from laxity_scheduler.model.job import FOREVER

Z90: Final = 1.2815515594457831  # the 90 % quantile of the standard normal distribution
UNKNOWN: Final = Estimate(0.0, FOREVER, FOREVER, FOREVER, "prior", 0)


def certain(seconds: float) -> Estimate:
    """No doubt about it."""
    return Estimate(seconds, seconds, seconds, seconds, "truth")


def believed(total_s: float, *, factor: float, sigma: float, seen: int) -> Estimate:
    """Of what takes `total_s`, once so many epochs were seen."""
    if sigma == 0.0:
        return Estimate(total_s, total_s, total_s, total_s, "truth", seen)
    shrunk = 1.0 / (1 + seen)
    spread = sigma * shrunk
    middle_s = total_s * factor**shrunk
    wide = math.exp(Z90 * spread)
    mean_s = middle_s * math.exp(spread * spread / 2.0)
    return Estimate(middle_s / wide, middle_s, mean_s, middle_s * wide, "history", seen)
