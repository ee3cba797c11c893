"""One part of a stop or start over widths: its usual seconds, its mean, and how far it strays.

    usual(w) = a + b w        a, b >= 0, seconds on w workers; b w beyond the widths that were seen
                              grows by the doubling: b m (1 + log2(w / m)), m the greatest that
                              b was seen at

b is the median of the slopes of all pairs of observations at different widths (Theil and Sen), drawn
towards what other models show the more, the less the widths tell (a ridge on b / usual); then the
usual time is the median of what is left. Costs have a heavy tail: the median misses their mean. So
the mean is kept apart, over the usual time and winsorised at the top, and P10 and P90 are quantiles
of what was seen. The form and its constants are ours; PickyMan only says that the
time lost is modelled (algorithms.md 2.4).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_profiler.history.report_values import SHORTEST_S
from laxity_profiler.model.calibration import NORMAL_90, P10, P90, factor_of, score_quantiles

LEAST_ERROR: Final = 0.08  # relative, of one occurrence
PRIOR_POINTS: Final = 0.5  # how many observations a prior is worth
ENOUGH: Final = 3  # observations; the prior no longer counts in the usual time
OWN_ERROR: Final = (
    0.35  # relative, of one occurrence, that is assumed beside two of the model's own
)
TAIL_POINTS: Final = 3.0  # how many observations the assumed mean is worth
SLOPE_SPREAD: Final = 0.2  # of b / usual, between models
WINSORISED: Final = 0.02  # so many of the largest, and one at least, count as the next one
ERROR_BEYOND: Final = 0.15  # relative, per doubling beyond the widths that were seen
MOST_TAIL: Final = 10.0  # times the usual time: no mean is believed to be greater


@dataclass(frozen=True, slots=True)
class PartFit:
    """One part: its usual seconds on `width` workers, and the relative error of one occurrence.

    `least` to `most` are the widths of the `n` observations, `line_to` the greatest that the line was
    fitted on, of this model or of others. `mean` is over the usual time; `x10`
    and `x90` are places of P10 and P90, times f(x) = x + sqrt(1 + x^2) of it. None: as `error` has it.
    """

    part: str
    seconds: float
    error: float
    n: int = 0
    per_worker: float = 0.0
    width: float = 1.0
    least: int = 1
    most: int = 1
    line_to: int = 1
    mean: float | None = None
    x10: float | None = None
    x90: float | None = None

    def usual_s(self, workers: int) -> float:
        """Half of the occurrences on so many workers take longer."""
        width = float(workers)
        if workers > self.line_to and self.per_worker > 0.0:
            width = self.line_to * (1.0 + math.log2(workers / self.line_to))
        return max(0.0, self.seconds + self.per_worker * (width - self.width))

    @property
    def slope(self) -> float:
        """Per worker, as a share of the usual time on one."""
        alone_s = self.usual_s(1)
        return self.per_worker / alone_s if alone_s > 0.0 else 0.0

    def seconds_at(self, workers: int) -> tuple[float, float, float, float]:
        """P10, P50, mean and P90 on so many workers, in seconds."""
        usual_s = self.usual_s(workers)
        away = ERROR_BEYOND * self._doublings_away(workers) if self.n else 0.0
        x10 = -NORMAL_90 * self.error if self.x10 is None else self.x10
        x90 = NORMAL_90 * self.error if self.x90 is None else self.x90
        mean = 1.0 + self.error * self.error / 2.0 if self.mean is None else self.mean
        off = NORMAL_90 * away
        low, high = math.sqrt(x10 * x10 + off * off), math.sqrt(x90 * x90 + off * off)
        mean *= 1.0 + away * away / 2.0
        return usual_s / factor_of(low), usual_s, usual_s * mean, usual_s * factor_of(high)

    def _doublings_away(self, workers: int) -> float:
        return math.log2(max(workers / self.most, self.least / workers, 1.0))


def fit_part(observations: Sequence[tuple[int, float]], expected: PartFit) -> PartFit:
    """From (workers, seconds), at least one, over what was expected before them."""
    widths = np.asarray([row[0] for row in observations], dtype=np.float64)
    seconds = np.asarray([row[1] for row in observations], dtype=np.float64)
    seconds[seconds < SHORTEST_S] = 0.0
    n, middle = len(observations), float(widths.mean())
    least, most = int(widths.min()), int(widths.max())
    slope = _fit_slope(widths, seconds, expected)
    weight = n / (n + PRIOR_POINTS) if n < ENOUGH else 1.0
    own_s = float(np.median(seconds / (1.0 + slope * (widths - middle))))
    usual_s = weight * own_s + (1.0 - weight) * expected.usual_s(round(middle))
    if usual_s < SHORTEST_S:
        return PartFit(expected.part, 0.0, LEAST_ERROR, n)
    ratios = seconds / (usual_s * (1.0 + slope * (widths - middle)))
    # How far other models are apart says nothing once there are two occurrences of its own.
    error = _fit_error(ratios, min(expected.error, OWN_ERROR) if n > 1 else expected.error)
    x10, x90 = _tail_positions(ratios, error)
    return PartFit(
        expected.part,
        usual_s,
        error,
        n,
        slope * usual_s,
        middle,
        least,
        most,
        max(most, expected.line_to),
        _fit_mean(ratios, error),
        x10,
        x90,
    )


def _fit_slope(widths: Floats, seconds: Floats, expected: PartFit) -> float:
    """Over the usual time: b at the mean width; between 0 and what makes a zero."""
    middle = float(widths.mean())
    slope = expected.per_worker / max(1e-9, expected.usual_s(round(middle)))
    left, right = np.triu_indices(len(widths), 1)
    apart = widths[left] != widths[right]
    if apart.any():
        left, right = left[apart], right[apart]
        median_slope = float(
            np.median((seconds[right] - seconds[left]) / (widths[right] - widths[left]))
        )
        usual_s = float(np.median(seconds - median_slope * (widths - middle)))
        if usual_s > 0.0:
            error = _fit_error(
                (seconds - median_slope * (widths - middle)) / usual_s, expected.error
            )
            unsure2 = 1.25 * error * error / float(((widths - middle) ** 2).sum())
            weight = SLOPE_SPREAD**2 / (SLOPE_SPREAD**2 + unsure2)
            slope = weight * median_slope / usual_s + (1.0 - weight) * slope
    return min(max(slope, 0.0), 1.0 / middle)


def _fit_error(ratios: Floats, assumed: float) -> float:
    """Of one occurrence, from the middle half of the observations; the assumed one while there are few."""
    n = len(ratios)
    off = 1.4826 * float(np.median(np.abs(ratios - 1.0)))
    return max(LEAST_ERROR, min(1.0, math.sqrt((assumed**2 + n * off * off) / (n + 1))))


def _tail_positions(ratios: Floats, error: float) -> tuple[float, float]:
    """Of P10 and P90; while there are few observations, with assumed ones among them."""
    believed = np.maximum(ratios, 1e-6)
    scores = ((believed - 1.0 / believed) / 2.0 / error).tolist()
    z10, z90 = score_quantiles(scores, (P10, P90))
    return min(0.0, z10 * error), max(0.0, z90 * error)


def _fit_mean(ratios: Floats, error: float) -> float:
    """Over the usual time: the very largest count as the next one; few are mixed with the assumed."""
    ordered = np.sort(ratios)
    n, cut = len(ordered), math.ceil(WINSORISED * len(ordered))
    capped = np.minimum(ordered, ordered[max(0, n - 1 - cut)]) if n > ENOUGH else ordered[:0]
    assumed = 1.0 + error * error / 2.0
    total = float(capped.sum()) if len(capped) else n * assumed
    return min(MOST_TAIL, (TAIL_POINTS * assumed + total) / (TAIL_POINTS + n))


def pool_fits(fits: Sequence[PartFit], prior: PartFit) -> PartFit:
    """Over several models, on one worker: the middle one, sure as far as they agree."""
    if not fits:
        return prior
    n = len(fits)
    alone = [fit.usual_s(1) for fit in fits]
    seconds = _mix_with_prior(prior.usual_s(1), median(alone), n)
    spread = [
        abs(seconds_alone - seconds) / seconds if seconds > 0.0 else 0.0 for seconds_alone in alone
    ]
    error = max(0.25, min(1.0, 1.4826 * median(spread)))
    slopes = [prior.slope, *(fit.slope for fit in fits if fit.most > fit.least)]
    slope = (slopes[0] + (len(slopes) - 1) * median(slopes[1:] or slopes)) / len(slopes)
    means = [fit.mean for fit in fits if fit.mean is not None]
    mean = max(1.0 + error * error / 2.0, fmean(means)) if means else None
    line_to = max(prior.line_to, *(fit.line_to for fit in fits))
    return PartFit(
        prior.part, seconds, error, per_worker=slope * seconds, line_to=line_to, mean=mean
    )


def _mix_with_prior(prior_s: float, seen_s: float, n: int) -> float:
    """Of n models and what was assumed before; as a ratio, for costs differ by factors."""
    weight = n / (n + PRIOR_POINTS)
    if min(prior_s, seen_s) > 0.0:
        return prior_s * math.exp(weight * math.log(seen_s / prior_s))
    return weight * seen_s + (1.0 - weight) * prior_s
