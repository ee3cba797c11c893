"""A distribution of the wait as quantiles per row, read at the levels that a calibration says."""

from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats

LEVELS: Final = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98])


def level_weights() -> Floats:
    """The probability for which each level stands, (levels,): up to halfway to its neighbours."""
    edges = np.concatenate(([0.0], (LEVELS[1:] + LEVELS[:-1]) / 2, [1.0]))
    return np.diff(edges)


def read_levels(quantiles_h: Floats, levels: Floats) -> Floats:
    """Quantiles at other levels, (n, levels), with straight lines between; flat beyond the last."""
    place = np.interp(levels, LEVELS, np.arange(len(LEVELS), dtype=np.float64))
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, len(LEVELS) - 1)
    part = place - low
    read: Floats = quantiles_h[:, low] * (1 - part) + quantiles_h[:, high] * part
    return read
