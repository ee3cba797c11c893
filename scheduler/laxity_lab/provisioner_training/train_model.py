"""Fit a model on samples, and measure its errors on weeks that it has not seen.

A fifth of the weeks, drawn by the seed, is held out. `calibrated` goes through all fifths: each is
predicted by a fit on the others, these predictions calibrate it, and the model that is kept is
fitted on everything.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from laxity_lab.provisioner_training.samples import (
    FOLDS,
    Episodes,
    Samples,
    as_episodes,
    week_folds,
)
from laxity_lab.provisioner_training.wait_calibration import calibrate_levels, pinball_h, rank_waits
from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.choices import CALIBRATED, NETWORKS, POLICIES
from laxity_scheduler.chains.features import DECIDE_EVERY_S, Windows
from laxity_scheduler.chains.model_kinds import Model
from laxity_scheduler.chains.network_models import NetworkModel, PolicyModel
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.chains.trees import Trees
from laxity_scheduler.chains.value_models import (
    CalibratedModel,
    PointModel,
    ValueModel,
    predict_waits_h,
)
from laxity_scheduler.chains.wait_distribution import LEVELS, read_levels
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.job import HOUR_S

MEDIAN: Final = int(np.flatnonzero(LEVELS == 0.5)[0])
Advance = Callable[[int], object]  # told of each step of `steps_of`
Fitted = tuple[Model, dict[str, float]]


def steps_of(kind: str) -> int:
    """How many steps of work a training has at most."""
    if kind in NETWORKS or kind in POLICIES:
        from laxity_lab.provisioner_training import torch_fitting, torch_policies
        from laxity_lab.provisioner_training.torch_modules import PAPER

        return {
            "transformer": torch_fitting.TRANSFORMER.passes,
            "mixture": torch_fitting.MIXTURE.passes + PAPER.experts,
            "dqn": torch_policies.DQN.passes,
        }.get(kind, torch_policies.POLICY_GRADIENT.passes)
    return (FOLDS + 1) * len(LEVELS) if kind == CALIBRATED else 1


def train_model(kind: str, samples: Samples, seed: int, advance: Advance) -> Fitted:
    """A model that predicts, and its errors. ValueError if the samples span too few weeks."""
    folds = week_folds(samples.began_at, seed)
    if kind == CALIBRATED:
        return train_calibrated(samples, folds, seed, advance)
    training, held = (samples.rows(np.flatnonzero(rows)) for rows in (folds != 0, folds == 0))
    if kind in NETWORKS:
        return train_network(kind, training, held, seed, advance)
    fitted = train_point(kind, training, held, seed)
    advance(1)
    return fitted


def train_policy(
    samples: Samples,
    base: NetworkModel | None,
    seed: int,
    advance: Advance,
    prices: Prices,
) -> Fitted:
    """A policy from hourly samples, and what it costs on held-out weeks.

    `base` is the trained model on which a policy gradient rests; `dqn` has none. ValueError if the
    samples span too few weeks.
    """
    from laxity_lab.provisioner_training.torch_policies import fit_dqn, fit_policy_gradient

    episodes = as_episodes(samples, prices)
    folds = week_folds(episodes.began_at, seed)
    training, held = (episodes.part(np.flatnonzero(rows)) for rows in (folds != 0, folds == 0))
    if base is None:
        model, passes = fit_dqn(training, held, seed, advance)
    else:
        model, passes = fit_policy_gradient(base.experts, training, held, seed, advance)
    return model, {**policy_errors(model, held), "passes": float(passes)}


def policy_errors(model: PolicyModel, held: Episodes) -> dict[str, float]:
    """Of hourly decisions on weeks held out; beside them what submitting at the end costs."""
    submits = model.submits(held.samples.windows).reshape(len(held), -1)
    chosen = held.difference_h[np.arange(len(held)), held.chosen_steps(submits)]
    return {
        "held_out": float(len(held)),
        "interruption_h": float(np.maximum(0.0, chosen).mean()),
        "overlap_h": float(np.maximum(0.0, -chosen).mean()),
        "reactive_interruption_h": float(np.maximum(0.0, held.difference_h[:, -1]).mean()),
    }


def train_network(
    kind: str, training: Samples, held: Samples, seed: int, advance: Advance
) -> Fitted:
    """`transformer` or `mixture`."""
    from laxity_lab.provisioner_training.torch_fitting import Lesson, fit_mixture, fit_transformer

    fit = fit_transformer if kind == "transformer" else fit_mixture
    model, passes = fit(Lesson(training, held), seed, advance)
    return model, {**point_errors(model, held), "passes": float(passes)}


def train_point(kind: str, training: Samples, held: Samples, seed: int) -> Fitted:
    """`forest`, `xgboost` or `boosting`."""
    rows, values = training.windows.flat(), training.difference_h
    if kind == "xgboost":
        from laxity_lab.provisioner_training.xgboost_fitting import fit_xgboost

        model = PointModel(fit_xgboost(rows, values, seed))
    else:
        from laxity_lab.provisioner_training.tree_fitting import fit_boosting, fit_forest

        fit = fit_forest if kind == "forest" else fit_boosting
        model = PointModel(fit(rows, values, seed))
    return model, point_errors(model, held)


def point_errors(model: ValueModel, held: Samples) -> dict[str, float]:
    miss_h = np.abs(model.predict_h(held.windows)[:, 0] - held.difference_h)
    return {"held_out": float(len(held)), "mean_absolute_error_h": float(miss_h.mean())}


def train_calibrated(samples: Samples, folds: Ints, seed: int, advance: Advance) -> Fitted:
    """Cross-fitted quantiles, their calibration, and the fit on everything.

    Each wait is drawn out by a part of the ten minutes to the next decision: decisions are no finer,
    and the many waits of zero could not be ranked.
    """
    drawn = np.random.default_rng(seed).uniform(0, DECIDE_EVERY_S / HOUR_S, len(samples))
    windows, wait_h = samples.windows, samples.wait_h + drawn
    held_h = np.zeros((len(samples), len(LEVELS)))
    for fold in range(FOLDS):
        training, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        levels = fit_levels(windows.rows(training), wait_h[training], seed, advance)
        held_h[held] = predict_waits_h(levels, windows.rows(held))
    ranks = rank_waits(held_h, wait_h)
    errors = measure_errors(held_h, wait_h, ranks, folds)
    model = CalibratedModel(fit_levels(windows, wait_h, seed, advance), calibrate_levels(ranks))
    return model, errors


def fit_levels(windows: Windows, wait_h: Floats, seed: int, advance: Advance) -> tuple[Trees, ...]:
    """An ensemble per level, of log(1 + hours), in which a long wait weighs less."""
    from laxity_lab.provisioner_training.tree_fitting import fit_quantile

    rows, values = windows.summary(), np.log1p(wait_h)
    levels = []
    for level in LEVELS:
        levels.append(fit_quantile(rows, values, float(level), seed))
        advance(1)
    return tuple(levels)


def measure_errors(held_h: Floats, wait_h: Floats, ranks: Floats, folds: Ints) -> dict[str, float]:
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
