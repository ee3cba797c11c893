"""Epoch time over workers: levels that were measured, and a curve for the widths between them.

    T(w) = alpha + beta / w + gamma * w + delta * [nodes > 1]    seconds; serial, parallel and
                                     communication parts, and what leaving a node costs

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
ERROR_UNSEEN: Final = 0.80  # beyond a node, if only runs inside one were seen (or the other way)


@dataclass(frozen=True, slots=True)
class Level:
    """Epoch time at one width. `error` is the relative standard error of this mean.

    `nodes`: on so many the workers lay; None if that is not known of any run. `is_warm_up`: nothing
    but epochs that warmed up was seen.
    """

    width: int
    epoch_s: float
    error: float
    runs: int
    n: int
    nodes: int | None = None
    is_warm_up: bool = False

    @property
    def is_beyond(self) -> bool:
        """Beyond a node."""
        return self.nodes is not None and self.nodes > 1


@dataclass(frozen=True, slots=True)
class WidthCurve:
    """alpha, beta, gamma, delta in seconds, none negative."""

    alpha: float
    beta: float
    gamma: float = 0.0
    delta: float = 0.0

    def epoch_s(self, width: int, *, is_beyond: bool = False) -> float:
        inside = self.alpha + self.beta / width + self.gamma * width
        return inside + self.delta if is_beyond else inside


ONE_WIDTH: Final = WidthCurve(1.0 - PARALLEL_SHARE, PARALLEL_SHARE)


def interpolate_curve(
    levels: Sequence[Level], curve: WidthCurve, width: int, nodes: int | None = None
) -> tuple[float, float]:
    """Epoch time at a width in seconds, and its relative error. `levels` by width, at least one.

    On so many nodes; None: wherever runs of that width were, on the fewest they were seen on.
    """
    same = [level for level in levels if level.width == width]
    exact = [level for level in same if nodes is None or level.nodes in (None, nodes)]
    if exact:
        return exact[0].epoch_s, exact[0].error
    is_beyond = nodes > 1 if nodes is not None else _lies_beyond_node(levels, width)
    side = _one_per_width([level for level in levels if level.is_beyond == is_beyond])
    unseen = 0.0 if side else ERROR_UNSEEN
    side = side or _one_per_width(levels)
    nearest = min(side, key=lambda level: (count_doublings(level.width, width), level.width))
    per_doubling = ERROR_ONE_WIDTH
    if len(side) > 1:
        inside = side[0].width < width < side[-1].width
        per_doubling = ERROR_BETWEEN if inside else ERROR_BEYOND
    away = per_doubling * count_doublings(nearest.width, width)
    error = math.sqrt(nearest.error * nearest.error + away * away + unseen * unseen)
    return curve.epoch_s(width, is_beyond=is_beyond) * _bend_factor(side, curve, width), error


def _lies_beyond_node(levels: Sequence[Level], width: int) -> bool:
    """Whether so many workers lie on several nodes, as far as the nearest narrower runs say."""
    return any(level.is_beyond for level in levels if level.width <= width) and not any(
        level.width >= width and not level.is_beyond for level in levels
    )


def _one_per_width(levels: Sequence[Level]) -> list[Level]:
    """Of levels at one width that on the fewest nodes, which comes first."""
    levels_by_width: dict[int, Level] = {}
    for level in levels:
        levels_by_width.setdefault(level.width, level)
    return list(levels_by_width.values())


@lru_cache(maxsize=65_536)
def count_doublings(width: int, other_width: int) -> float:
    """How many doublings lie between two widths."""
    return abs(math.log2(width) - math.log2(other_width))


def _bend_factor(levels: Sequence[Level], curve: WidthCurve, width: int) -> float:
    """What the measured levels say of the curve here: interpolated over log2 of the width.

    A level of this very width (on other nodes) is believed alone; beyond the levels the last counts.
    """
    below = [level for level in levels if level.width <= width]
    above = [level for level in levels if level.width >= width]
    left, right = below[-1] if below else above[0], above[0] if above else below[-1]
    low, high = _ratio_to_curve(left, curve), _ratio_to_curve(right, curve)
    if left.width == right.width:
        return low
    span = math.log2(right.width) - math.log2(left.width)
    part = (math.log2(width) - math.log2(left.width)) / span
    return low + part * (high - low)


def _ratio_to_curve(level: Level, curve: WidthCurve) -> float:
    """How many times as long as on the curve an epoch takes at this level."""
    return level.epoch_s / curve.epoch_s(level.width, is_beyond=level.is_beyond)
