"""A fit as a registry shows it: its name there, what it was trained on, and how far off it was."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Final

from laxity_profiler.learning.backtest import TrainingSummary
from laxity_profiler.model.model_fit import ModelFit
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_profiler.registry.entry import (
    QUANTILES,
    Column,
    RegistryEntry,
    instant_text,
    join_numbers,
    mlflow_params,
)

PREFIX: Final = "laxity."
SERVED: Final = "served_predictor.py"
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class TrainedModel:
    """One model's fit, what it was made of, and its errors by the name of a metric."""

    fit: ModelFit
    summary: TrainingSummary
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return registry_name(self.fit.model)

    @cached_property
    def predictor(self) -> HistoryPredictor:
        return HistoryPredictor((self.fit,))

    @property
    def digest(self) -> str:
        return self.predictor.version


def registry_name(model: str) -> str:
    """A name that the registry takes: one per model key, readable where it can be."""
    plain = _NOT_IN_A_NAME.sub("-", model)
    if plain == model:
        return f"{PREFIX}{model}"
    return f"{PREFIX}{plain}-{sha256(model.encode()).hexdigest()[:8]}"


def predictor_entry(trained: TrainedModel) -> RegistryEntry:
    """The fit of one model key as the registry takes it."""
    model = trained.fit.model
    optional_columns = [
        Column("long", name, required=False) for name in ("epochs", "batch_size", "samples")
    ]
    return RegistryEntry(
        name=trained.name,
        digest=trained.digest,
        predicts=model,
        about=f"How long an epoch of {model} takes: P10, P50, mean and P90.",
        description=description_of(trained),
        fit=trained.predictor.to_json(),
        served=SERVED,
        inputs=(Column("long", "workers"), *optional_columns),
        outputs=(*(Column("double", name) for name in QUANTILES), Column("string", "source")),
        params=params_of(trained),
        metrics=metrics_of(trained),
    )


def params_of(trained: TrainedModel) -> dict[str, str]:
    """What a fit was trained on, in words; instants in UTC."""
    lesson = trained.summary
    params: dict[str, object] = {
        "model": trained.fit.model,
        "digest": trained.digest,
        "runs": lesson.runs,
        "epochs": lesson.epochs,
        "settings": len(trained.fit.settings),
        "widths": join_numbers(lesson.widths),
        "batch_sizes": join_numbers(lesson.batch_sizes),
        "nodes": join_numbers(lesson.nodes),
        "samples": join_numbers(lesson.samples),
        "first_epoch_at": instant_text(lesson.first_at),
        "last_epoch_at": instant_text(lesson.last_at),
    }
    return mlflow_params(params)


def metrics_of(trained: TrainedModel) -> dict[str, float]:
    """Errors of the backtests, and how much runs and epochs differ."""
    fit = trained.fit
    spread = {"fit/spread_of_runs": fit.spread2**0.5, "fit/noise_of_epochs": fit.noise2**0.5}
    return {**trained.errors, **spread}


def description_of(trained: TrainedModel) -> str:
    lesson, errors = trained.summary, trained.errors
    text = f"Trained on {lesson.epochs} epochs of {lesson.runs} runs, {join_numbers(lesson.widths)} workers."
    if "error/median_ape" in errors:
        text += (
            f" Of {errors['error/n']:.0f} past runs, each predicted from the others: median error "
            f"{100 * errors['error/median_ape']:.1f} %, {100 * errors['coverage/p90']:.0f} % within P90."
        )
    return text
