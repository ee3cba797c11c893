"""The conformal calibration of a distribution of the wait.

Fitted quantiles are too narrow on weeks that they have not seen. So the level is corrected at which
they are read: of weeks held out, it is noted at which level each wait lay (its rank); the quantile
asked for at 80 % is then read at the level below which 80 % of those ranks lie (distributional
conformal prediction). Unlike a shift in hours it leaves an empty queue's prediction at zero.
"""

import math

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.wait_distribution import LEVELS


def rank_waits(quantiles_h: Floats, wait_h: Floats) -> Floats:
    """The level at which each wait lies, (n,), by quantiles (n, levels): 0 below all, 1 above."""
    row, count = np.arange(len(wait_h)), len(LEVELS)
    below = (quantiles_h < wait_h[:, None]).sum(axis=1)
    high = np.minimum(below, count - 1)
    low = np.maximum(high - 1, 0)
    span = np.maximum(quantiles_h[row, high] - quantiles_h[row, low], 1e-9)
    part = np.clip((wait_h - quantiles_h[row, low]) / span, 0.0, 1.0)
    between = LEVELS[low] + part * (LEVELS[high] - LEVELS[low])
    ranks: Floats = np.where(below == 0, 0.0, np.where(below == count, 1.0, between))
    return ranks


def calibrate_levels(ranks: Floats) -> Floats:
    """At which level to read each of LEVELS, (levels,), by the ranks of waits held out."""
    ordered = np.sort(ranks)
    count = len(ordered)
    places = [min(count, math.ceil((count + 1) * level)) - 1 for level in LEVELS]
    return ordered[places]


def pinball_h(quantiles_h: Floats, wait_h: Floats) -> float:
    """Mean loss over all levels, hours: lower is a better distribution."""
    miss = wait_h[:, None] - quantiles_h
    return float(np.maximum(LEVELS * miss, (LEVELS - 1) * miss).mean())
