"""One row of an answer: the numbers from which the quantiles of a remaining time are computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final

import numpy as np

from laxity_profiler.estimate import Estimates, Floats, Progress, Source
from laxity_profiler.model.calibration import factor_at
from laxity_profiler.model.early_ends import ALL_EPOCHS, EpochShares
from laxity_profiler.model.epoch_curve import ERROR_ONE_WIDTH, ONE_WIDTH, count_doublings
from laxity_profiler.model.odd_epochs import RareEpochs, split_epochs
from laxity_profiler.model.run_factor import Belief, update_belief
from laxity_profiler.predictor.prior import (
    NO_TIME,
    ONE_UNIT,
    Quantiles,
    UnitsLeft,
    WidthPrior,
    WorkloadPrior,
    assume_shape,
)

# the epochs left (their sum over the mean one, as many equal ones, the next one), seconds per epoch,
# relative variance that is left, noise of one epoch, z10, z50, z90, P10, P50, P90 of the seconds from
# the last epoch to the end, and of the warm-up of the one that runs, and the shares of the epochs left
# that are expected at P10, P50, mean and P90, and how many usual epochs rare long ones may add
Numbers = tuple[float, ...]
NUMBERS: Final = 23
Row = tuple[Numbers, Source, int]


@dataclass(frozen=True, slots=True)
class OwnEpochs:
    """What a job's own epochs say: the belief about widths it ran at, and about all others.

    `widths` are those; elsewhere the shape of the curve adds its error. `rare` has the rare long ones.
    `moved_error2`: they ran on another product, which compares with this relative variance; None: on
    the same.
    """

    here: Mapping[int, Belief]
    elsewhere: Belief
    widths: tuple[int, ...]
    n: int
    one_worker_s: float
    rare: RareEpochs
    moved_error2: float | None = None

    @classmethod
    def of(cls, workload_prior: WorkloadPrior, progress: Progress) -> "OwnEpochs":
        widths = tuple(sorted(set(progress.widths)))
        one_worker_s = progress.epoch_s[-1] / ONE_WIDTH.epoch_s(progress.widths[-1])
        width_priors = {
            width: assume_shape(workload_prior.prior_at(width), width, one_worker_s)
            for width in widths
        }
        ratios = [
            (width, seconds / (width_priors[width].epoch_s * workload_prior.ratio_of(number)))
            for width, seconds, number in zip(
                progress.widths, progress.epoch_s, progress.epoch_numbers, strict=True
            )
        ]
        anchor = width_priors[progress.widths[-1]]
        prior = Belief(1.0, anchor.spread2 + anchor.error2, 0.0, anchor.noise2, 0)
        mixture = split_epochs([ratio for _, ratio in ratios], prior)
        ratios = list(compress(ratios, mixture.is_usual))
        everywhere = update_belief(prior, [ratio for _, ratio in ratios])
        here = {widths[0]: everywhere}
        if len(widths) > 1:
            here = {
                width: _update_width(width, ratios, prior, width_priors[width]) for width in widths
            }
        return cls(here, everywhere, widths, len(progress.epoch_s), one_worker_s, mixture.rare)

    def row(
        self,
        width_prior: WidthPrior,
        width: int,
        left: UnitsLeft,
        warm_up_s: Quantiles,
        shares: EpochShares = ALL_EPOCHS,
    ) -> Row:
        """The rest on `width` workers."""
        width_prior = assume_shape(width_prior, width, self.one_worker_s)
        belief = self.here.get(width, self.elsewhere)
        left2 = belief.left2
        if width not in self.here:
            left2 += _shape_variance(width_prior, self.widths, width)
        if self.moved_error2 is not None:
            left2 += max(width_prior.error2, self.moved_error2)
        z = width_prior.later
        numbers = (
            *left, width_prior.epoch_s * belief.factor, left2, belief.noise2, z.z10, z.z50, z.z90,
            *width_prior.end_s, *warm_up_s, *shares, *(width_prior.rare + self.rare).expected_excess(left[0])
        )  # fmt: skip
        return (
            numbers,
            "observed" if belief.gain > 0.5 else width_prior.source,
            width_prior.n + self.n,
        )


def _update_width(
    width: int, ratios: Sequence[tuple[int, float]], prior: Belief, width_prior: WidthPrior
) -> Belief:
    """A width among several that the job ran at: first what the others say, then its own epochs."""
    others = [ratio for other, ratio in ratios if other != width]
    carried = update_belief(prior, others)
    other_widths = [other for other, _ in ratios if other != width]
    error2 = _shape_variance(width_prior, other_widths, width) if other_widths else 0.0
    unsure = Belief(carried.factor, carried.left2 + error2, carried.gain, carried.noise2, carried.n)
    return update_belief(unsure, [ratio for other, ratio in ratios if other == width])


def _shape_variance(width_prior: WidthPrior, widths: Sequence[int], width: int) -> float:
    """Relative variance of going from widths that the job ran at to another one."""
    away = ERROR_ONE_WIDTH * min(count_doublings(other, width) for other in widths)
    has_history = bool(width_prior.n) or width_prior.source == "user"
    return min(width_prior.error2, away * away) if has_history else away * away


def row_of_one_epoch(width_prior: WidthPrior) -> Row:
    """A row of a single epoch in the middle of a training."""
    return row_of_prior(replace(width_prior, end_s=NO_TIME), ONE_UNIT, NO_TIME)


def row_of_prior(
    width_prior: WidthPrior, left: UnitsLeft, warm_up_s: Quantiles, shares: EpochShares = ALL_EPOCHS
) -> Row:
    """A row of a job without epochs of its own."""
    z = width_prior.start
    left2 = width_prior.spread2 + width_prior.error2
    numbers = (
        *left, width_prior.epoch_s, left2, width_prior.noise2, z.z10, z.z50, z.z90,
        *width_prior.end_s, *warm_up_s, *shares, *width_prior.rare.expected_excess(left[0])
    )  # fmt: skip
    return numbers, width_prior.source, width_prior.n


def estimate_rows(rows: Sequence[Row]) -> Estimates:
    """Quantiles of all rows at once; arrays of shape (rows,). Only exact operations are used."""
    numbers = np.array([row[0] for row in rows], dtype=np.float64).reshape(-1, NUMBERS)
    epochs, equal, following, level, left2, noise2 = numbers[:, :6].T
    sigma2 = left2 + noise2 / equal
    x = numbers[:, 6:9] * np.sqrt(sigma2)[:, None]
    up = factor_at(x)
    unknown = np.isinf(level)
    total = np.where(unknown | (epochs == 0.0), 0.0, level) * epochs
    end, warm_up = numbers[:, 9:12].T, numbers[:, 12:15].T
    end_s, warm_up_s = end[1] + warm_up[1], warm_up[1]
    low = end_s - _root_sum_of_squares(end[1] - end[0], warm_up[1] - warm_up[0])
    high = end_s + _root_sum_of_squares(end[2] - end[1], warm_up[2] - warm_up[1])
    least, usual, average, most = numbers[:, 15:19].T
    extra = np.where(unknown, 0.0, level)[:, None] * numbers[:, 19:]
    middle = total * up[:, 1]
    mean = middle * average * (1.0 + np.minimum(sigma2, 4.0) / 2.0) + extra[:, 2] + end_s
    p10, middle, p90 = total * up[:, 0] * least, middle * usual, total * up[:, 2] * most
    p10, middle, p90 = p10 + extra[:, 0], middle + extra[:, 1], p90 + extra[:, 3]
    p50 = middle + end_s
    ends = high > 0.0  # two spans, each unsure by itself: their deviations add as squares
    p10[ends] = (p50 - _root_sum_of_squares(middle - p10, end_s - low))[ends]
    p90[ends] = (p50 + _root_sum_of_squares(p90 - middle, high - end_s))[ends]
    never = unknown & (epochs > 0.0)
    for column in (p50, mean, p90):
        column[never] = np.inf
    return Estimates(
        p10,
        p50,
        mean,
        p90,
        tuple([row[1] for row in rows]),
        np.array([row[2] for row in rows], dtype=np.int64),
        np.stack(
            [
                _next_share(np.where(unknown, 1.0, level), units, following, warm_up_s)
                for units in (numbers[:, 15:19] * epochs[:, None] + numbers[:, 19:]).T
            ],
            axis=1,
        ),
        level * following * factor_at(numbers[:, 8] * np.sqrt(left2 + noise2)) + warm_up[2],
    )


def _next_share(level: Floats, epochs: Floats, following: Floats, warm_up_s: Floats) -> Floats:
    """Of the epochs that are expected, in time, the next one."""
    total_s = level * np.where(epochs > 0.0, epochs, following) + warm_up_s
    return np.asarray(np.minimum(1.0, (level * following + warm_up_s) / total_s))


def _root_sum_of_squares(one: Floats, other: Floats) -> Floats:
    """The root of the sum of squares, by exact operations (hypot is not the same everywhere)."""
    return np.asarray(np.sqrt(one * one + other * other))
