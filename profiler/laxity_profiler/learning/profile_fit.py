"""What four profiled runs come to: a curve over workers (and batch sizes), and how far it can be off.

With several batch sizes the step time is fitted: for a fixed number of samples N an epoch takes
N/B steps, so epoch time x B is proportional to the step time and N need not be known. Else the
epoch time over workers. The error is found by leaving each run out and predicting it from the rest:
harsh, since a corner that is left out lies outside what remains. Where four runs do not fit one
step time at all (a noisy machine), every interval is wider by that misfit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median

from laxity_profiler.model.calibration import NORMAL_90, factor_of
from laxity_profiler.model.epoch_curve import Level, interpolate_curve
from laxity_profiler.model.scaling import StepTime, fit_curve


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """One profiled run: its mean epoch in seconds, and how many epochs that is the mean of."""

    width: int
    batch_size: int | None
    epoch_s: float
    epochs: int


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Seconds per epoch in one configuration."""

    width: int
    batch_size: int | None
    p10_s: float
    p50_s: float
    p90_s: float
    is_profiled: bool


@dataclass(frozen=True, slots=True)
class ProfileFit:
    """The curve; `left_out_error` is the median relative error of runs predicted from the others."""

    points: tuple[CurvePoint, ...]
    left_out_error: float | None


def fit_profile(
    runs: Sequence[ProfiledRun],
    widths: Sequence[int],
    batch_sizes: Sequence[int | None],
    *,
    gpus_per_node: int,
) -> ProfileFit:
    """Every combination of these widths and batch sizes, from the profiled ones."""
    configurations = list(product(batch_sizes, widths))
    profiled = {(run.batch_size, run.width) for run in runs}
    rows = _predict_epochs(runs, configurations, gpus_per_node=gpus_per_node)
    points = [
        CurvePoint(width, batch, *_quantiles_around(epoch_s, error), (batch, width) in profiled)
        for (batch, width), (epoch_s, error) in zip(configurations, rows, strict=True)
    ]
    return ProfileFit(tuple(points), _leave_out_error(runs, gpus_per_node=gpus_per_node))


def _predict_epochs(
    runs: Sequence[ProfiledRun],
    configurations: Sequence[tuple[int | None, int]],
    *,
    gpus_per_node: int,
) -> list[tuple[float, float]]:
    """(seconds, relative error) for each (batch size, width)."""
    sizes = {run.batch_size for run in runs}
    if None not in sizes and len(sizes) > 1:
        model = StepTime(gpus_per_node=gpus_per_node)
        model.fit(
            [(run.batch_size or 1, run.width) for run in runs],
            [run.epoch_s * (run.batch_size or 1) for run in runs],
        )
        points = [(batch or 1, width) for batch, width in configurations]
        misfit = math.sqrt(fmean(float(miss) ** 2 for miss in model.misses_))
        steps, wrong = model.predict(points), model.relative_error(points)
        return [
            (float(step) / batch, math.hypot(float(error), misfit))
            for (batch, _), step, error in zip(points, steps, wrong, strict=True)
        ]
    levels = [
        Level(run.width, run.epoch_s, 0.05, 1, run.epochs)
        for run in sorted(runs, key=lambda run: run.width)
    ]
    curve = fit_curve([level.width for level in levels], [level.epoch_s for level in levels])
    return [interpolate_curve(levels, curve, width) for _, width in configurations]


def _leave_out_error(runs: Sequence[ProfiledRun], *, gpus_per_node: int) -> float | None:
    if len(runs) < 3:
        return None
    errors = []
    for run in runs:
        others = [other for other in runs if other is not run]
        configurations = [(run.batch_size, run.width)]
        ((epoch_s, _),) = _predict_epochs(others, configurations, gpus_per_node=gpus_per_node)
        errors.append(abs(epoch_s / run.epoch_s - 1.0))
    return median(errors)


def _quantiles_around(epoch_s: float, error: float) -> tuple[float, float, float]:
    up = factor_of(NORMAL_90 * error)
    return epoch_s / up, epoch_s, epoch_s * up
