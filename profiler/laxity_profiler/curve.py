"""Epoch time over workers: levels that were measured, and a curve for the widths between them.

    T(w) = alpha + beta / w + gamma * w        seconds; serial, parallel and communication parts

Measured levels are believed as they are: more workers can be slower. Between and beyond them the
curve is bent so that it goes through them, and what it says is the less sure the further away.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

PARALLEL_SHARE: Final = 0.95  # of an epoch on one worker, while only one width is known
ERROR_ONE_WIDTH: Final = 0.15  # relative, per doubling away from the only known width
ERROR_BETWEEN: Final = 0.05  # per doubling away from the next known width, inside the range
ERROR_BEYOND: Final = 0.12  # the same outside the range


@dataclass(frozen=True, slots=True)
class Level:
    """Epoch time at one width. `error` is the relative standard error of this mean."""

    width: int
    epoch_s: float
    error: float
    runs: int
    n: int


@dataclass(frozen=True, slots=True)
class Curve:
    """alpha, beta, gamma in seconds, none negative."""

    alpha: float
    beta: float
    gamma: float = 0.0

    def at(self, width: int) -> float:
        return self.alpha + self.beta / width + self.gamma * width


ONE_WIDTH: Final = Curve(1.0 - PARALLEL_SHARE, PARALLEL_SHARE)


def read(levels: Sequence[Level], curve: Curve, width: int) -> tuple[float, float]:
    """Epoch time at a width in seconds, and its relative error. `levels` by width, at least one."""
    for level in levels:
        if level.width == width:
            return level.epoch_s, level.error
    nearest = min(levels, key=lambda level: (doublings(level.width, width), level.width))
    per_doubling = ERROR_ONE_WIDTH
    if len(levels) > 1:
        inside = levels[0].width < width < levels[-1].width
        per_doubling = ERROR_BETWEEN if inside else ERROR_BEYOND
    away = per_doubling * doublings(nearest.width, width)
    error = math.sqrt(nearest.error * nearest.error + away * away)
    return curve.at(width) * _bend(levels, curve, width), error


@lru_cache(maxsize=65_536)
def doublings(one: int, other: int) -> float:
    """How many doublings lie between two widths."""
    return abs(math.log2(one) - math.log2(other))


def peak_width(levels: Sequence[Level]) -> int:
    """The width with the shortest epochs; the least of equals."""
    return min(levels, key=lambda level: (level.epoch_s, level.width)).width


def paying_widths(widths: Sequence[int], epoch_s: Sequence[float]) -> tuple[int, ...]:
    """Widths, ascending, of which each is faster than all smaller ones: no other is worth offering."""
    chosen: list[int] = []
    best = math.inf
    for width, seconds in sorted(zip(widths, epoch_s, strict=True)):
        if seconds < best:
            chosen.append(width)
            best = seconds
    return tuple(chosen)


def _bend(levels: Sequence[Level], curve: Curve, width: int) -> float:
    """What the measured levels say of the curve here: interpolated over log2 of the width."""
    below = [level for level in levels if level.width < width]
    above = [level for level in levels if level.width > width]
    if not below or not above:
        edge = above[0] if above else below[-1]
        return edge.epoch_s / curve.at(edge.width)
    left, right = below[-1], above[0]
    span = math.log2(right.width) - math.log2(left.width)
    part = (math.log2(width) - math.log2(left.width)) / span
    low = left.epoch_s / curve.at(left.width)
    return low + part * (right.epoch_s / curve.at(right.width) - low)
