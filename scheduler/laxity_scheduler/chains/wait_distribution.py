"""A distribution of the wait as quantiles per row, and its conformal calibration.

Fitted quantiles are too narrow on weeks that they have not seen. So the level is corrected at which
they are read: of weeks held out, it is noted at which level each wait lay (its rank); the quantile
asked for at 80 % is then read at the level below which 80 % of those ranks lie (distributional
conformal prediction). Unlike a shift in hours it leaves an empty queue's prediction at zero.
"""

import math
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats

LEVELS: Final = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98])


def level_weights() -> Floats:
    """The probability for which each level stands, (levels,): up to halfway to its neighbours."""
    edges = np.concatenate(([0.0], (LEVELS[1:] + LEVELS[:-1]) / 2, [1.0]))
    return np.diff(edges)


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


def read_levels(quantiles_h: Floats, levels: Floats) -> Floats:
    """Quantiles at other levels, (n, levels), with straight lines between; flat beyond the last."""
    place = np.interp(levels, LEVELS, np.arange(len(LEVELS), dtype=np.float64))
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(LEVELS) - 1)
    part = place - low
    read: Floats = quantiles_h[:, low] * (1 - part) + quantiles_h[:, high] * part
    return read


def pinball_h(quantiles_h: Floats, wait_h: Floats) -> float:
    """Mean loss over all levels, hours: lower is a better distribution."""
    miss = wait_h[:, None] - quantiles_h
    return float(np.maximum(LEVELS * miss, (LEVELS - 1) * miss).mean())
