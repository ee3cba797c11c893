"""Figures with bootstrap intervals. Trials that lie close together in time share jobs, and are not independent.

So a draw is made of blocks of consecutive trials, with the end joined to the beginning.
"""

from collections.abc import Callable
from typing import Final, TypedDict

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints

DRAWS: Final = 2_000
SEED: Final = 0
LOW, HIGH = 2.5, 97.5  # percentiles: 95 % of the draws lie between


class IntervalMetric(TypedDict):
    """A figure, what it is compared with, and between what it lies in 95 % of the draws."""

    value: float
    unit: str
    baseline: float | None
    low: float | None
    high: float | None


def interval_figure(
    value: float,
    unit: str,
    baseline: float | None = None,
    *,
    between: tuple[float, float] | None = None,
) -> IntervalMetric:
    low, high = between or (None, None)
    return {"value": value, "unit": unit, "baseline": baseline, "low": low, "high": high}


def draw_blocks(count: int, block: int = 1, *, draws: int = DRAWS) -> Ints:
    """Indices of drawn trials, (draws, count)."""
    block = max(1, min(block, count))
    blocks = -(-count // block)
    first = np.random.default_rng(SEED).integers(0, count, (draws, blocks, 1))
    rows: Ints = ((first + np.arange(block)) % count).reshape(draws, -1)[:, :count]
    return rows


def bootstrap_interval(statistic: Callable[[Ints], Floats], draws: Ints) -> tuple[float, float]:
    """Between which values 95 % of the statistic's draws lie."""
    low, high = np.nanpercentile(statistic(draws), (LOW, HIGH))
    return float(low), float(high)
