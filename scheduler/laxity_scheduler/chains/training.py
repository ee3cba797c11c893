"""Fit a model on samples, and measure its errors on weeks that it has not seen.

A fifth of the weeks, drawn by the seed, is held out of `forest` and `boosting`. `calibrated` goes
through all fifths: each is predicted by a fit on the others, these predictions calibrate it, and the
model that is kept is fitted on everything.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.features import Windows
from laxity_scheduler.chains.samples import FOLDS, Samples, week_folds
from laxity_scheduler.chains.trees import Trees
from laxity_scheduler.chains.value_models import (
    CalibratedModel,
    PointModel,
    ValueModel,
    predict_waits_h,
)
from laxity_scheduler.chains.wait_distribution import (
    LEVELS,
    calibrate_levels,
    pinball_h,
    rank_waits,
    read_levels,
)
from laxity_scheduler.frame.arrays import Ints

SEED: Final = 42
MEDIAN: Final = int(np.flatnonzero(LEVELS == 0.5)[0])
Advance = Callable[[int], object]  # told of each step of `steps_of`
Fitted = tuple[ValueModel, dict[str, float]]


def steps_of(kind: str) -> int:
    """How many steps of work a training has."""
    return (FOLDS + 1) * len(LEVELS) if kind == "calibrated" else 1


def train_model(kind: str, samples: Samples, seed: int, advance: Advance) -> Fitted:
    """A model and its errors. ValueError if the samples span too few weeks."""
    folds = week_folds(samples.began_at, seed)
    if len(np.unique(folds)) < FOLDS:
        weeks = len(np.unique(folds))
        raise ValueError(f"the starts span {weeks} weeks: {FOLDS} at least, to hold one out")
    if kind == "calibrated":
        return train_calibrated(samples, folds, seed, advance)
    fitted = train_point(kind, samples, folds, seed)
    advance(1)
    return fitted


def train_point(kind: str, samples: Samples, folds: Ints, seed: int) -> Fitted:
    """`forest` or `boosting`."""
    from laxity_scheduler.chains.tree_fitting import fit_boosting, fit_forest

    fit = fit_forest if kind == "forest" else fit_boosting
    training, held = (samples.rows(np.flatnonzero(rows)) for rows in (folds != 0, folds == 0))
    model = PointModel(fit(training.windows.flat(), training.difference_h, seed))
    miss_h = np.abs(model.predict_h(held.windows)[:, 0] - held.difference_h)
    errors = {"held_out": float(len(held)), "mean_absolute_error_h": float(miss_h.mean())}
    return model, errors


def train_calibrated(samples: Samples, folds: Ints, seed: int, advance: Advance) -> Fitted:
    """Cross-fitted quantiles, their calibration, and the fit on everything."""
    windows, wait_h = samples.windows, samples.wait_h
    held_h = np.zeros((len(samples), len(LEVELS)))
    for fold in range(FOLDS):
        training, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        levels = fit_levels(windows.rows(training), wait_h[training], seed, advance)
        held_h[held] = predict_waits_h(levels, windows.rows(held))
    ranks = rank_waits(held_h, wait_h)
    errors = held_out_errors(held_h, wait_h, ranks, folds)
    model = CalibratedModel(fit_levels(windows, wait_h, seed, advance), calibrate_levels(ranks))
    return model, errors


def fit_levels(windows: Windows, wait_h: Floats, seed: int, advance: Advance) -> tuple[Trees, ...]:
    """An ensemble per level, of log(1 + hours), in which a long wait weighs less."""
    from laxity_scheduler.chains.tree_fitting import fit_quantile

    rows, values = windows.summary(), np.log1p(wait_h)
    levels = []
    for level in LEVELS:
        levels.append(fit_quantile(rows, values, float(level), seed))
        advance(1)
    return tuple(levels)


def held_out_errors(held_h: Floats, wait_h: Floats, ranks: Floats, folds: Ints) -> dict[str, float]:
    """Errors of predictions that saw neither a fold's weeks nor were calibrated on them."""
    read_h = np.zeros_like(held_h)
    for fold in range(FOLDS):
        rows = folds == fold
        read_h[rows] = read_levels(held_h[rows], calibrate_levels(ranks[~rows]))
    covered = (wait_h[:, None] <= read_h + 1e-9).mean(axis=0)
    return {
        "held_out": float(len(wait_h)),
        "mean_absolute_error_h": float(np.abs(read_h[:, MEDIAN] - wait_h).mean()),
        "pinball_h": pinball_h(read_h, wait_h),
        **{f"coverage_p{100 * level:.0f}": float(covered[n]) for n, level in enumerate(LEVELS)},
    }
