"""Progress as a training script posts it, and when its units of work ended.

The body of a post is that of Kubeflow's KEP-2779, which Transformers speaks:

    {"trainerStatus": {"progressPercentage": 40, "metrics": [{"name": "loss", "value": "0.7"}]}}

The metrics `current_step` and `total_steps` say the same as the percentage, and finer. A unit is one
equal part of the work, such as one per cent. Its end lies between two posts and is interpolated.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from laxity.parsing import finite_number

UNITS: Final = 100  # of all the work, one per cent each
MOST_METRICS: Final = 200
LONGEST_NAME: Final = 250
STEP: Final = "current_step"
STEPS: Final = "total_steps"
EARLY_GAPS: Final = (
    3.0  # 100 % after a larger jump than so many of the largest before is an early end
)
_TINY: Final = 1e-9


class PostError(ValueError):
    """A post that says nothing that can be believed."""


@dataclass(frozen=True, slots=True)
class Post:
    """What one post says, at this monotonic time. `share` is of all the work, from 0 to 1.

    `by_steps`: the share is that of the steps done.
    """

    at: float
    share: float | None = None
    by_steps: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)


def read_post(body: bytes, at: float) -> Post:
    """The post with this body; PostError says what is wrong with it."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PostError("the body is not JSON") from error
    status = document.get("trainerStatus") if isinstance(document, dict) else None
    if not isinstance(status, dict):
        raise PostError('expected {"trainerStatus": {...}}')
    percent = status.get("progressPercentage")
    share = finite_number(percent, least=0.0, most=100.0)
    if percent is not None and share is None:
        raise PostError("progressPercentage: expected a number from 0 to 100")
    metrics = _read_metrics(status.get("metrics"))
    step, steps = metrics.pop(STEP, math.nan), metrics.pop(STEPS, math.nan)
    if 0 <= step <= steps and steps >= 1:
        return Post(at, step / steps, by_steps=True, metrics=metrics)
    return Post(at, None if share is None else share / 100.0, metrics=metrics)


def _read_metrics(rows: Any) -> dict[str, float]:
    """Those that are finite numbers, by name."""
    if rows is None:
        return {}
    if not isinstance(rows, list) or len(rows) > MOST_METRICS:
        raise PostError(f"metrics: expected a list of at most {MOST_METRICS}")
    metrics = {}
    for row in rows:
        name = row.get("name") if isinstance(row, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise PostError('metrics: expected rows such as {"name": "loss", "value": "0.7"}')
        value = _as_number(row.get("value"))
        if value is not None and math.isfinite(value):
            metrics[name] = value
    return metrics


def _as_number(value: Any) -> float | None:
    """A number, or a text that is one."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(slots=True)
class UnitTimes:
    """How much of the work is done, in `units` equal units, and when each of them ended.

    `at` and `share` are those of the latest post that counted. With `by_steps_only` a percentage
    does not count: a script that is told to stop may post 100 % all the same.
    """

    units: int
    at: float
    share: float = 0.0
    by_steps_only: bool = False
    largest_gap: float = 0.0  # between two posts of steps

    def take(self, post: Post) -> list[float]:
        """The monotonic times at which units have ended since the post before, ascending."""
        if post.share is None or post.share < self.share or not self._counts(post):
            return []
        first, last = self.count(self.share), self.count(post.share)
        gap, took_s = post.share - self.share, post.at - self.at
        ends = [
            self.at + took_s * (min(1.0, number / self.units) - self.share) / gap
            for number in range(first + 1, last + 1)
        ]
        if post.by_steps:
            self.largest_gap = max(self.largest_gap, gap)
        self.at, self.share = post.at, post.share
        return ends

    def count(self, share: float) -> int:
        """Whole units in this share of the work."""
        return math.floor(share * self.units + _TINY)

    def _counts(self, post: Post) -> bool:
        """Not 100 % of a script that stops, or whose steps were far from it: it has ended early."""
        if post.by_steps:
            return True
        jumps = self.largest_gap > 0 and post.share == 1.0
        ends_early = jumps and 1.0 - self.share > EARLY_GAPS * self.largest_gap
        return not self.by_steps_only and not ends_early


def begins_at_zero(shares: list[float], done: float) -> bool | None:
    """Whether a script that was further (`done`) began from nothing; None: not known yet.

    `shares` are those that it has posted since its start. A script that goes on posts more at first
    than between two posts.
    """
    above = [share for share in shares if share > 0.0]
    if above and above[0] >= done:
        return False
    if len(above) < 2:
        return None
    return above[0] <= 2.0 * (above[1] - above[0])
