"""A fit as a registry shows it: its name there, what it was trained on, and how far off it was."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Final

from laxity.durations import format_instant
from laxity_profiler.learning.backtest import Lesson
from laxity_profiler.model.model_fit import ModelFit
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_profiler.registry.entry import QUANTILES, Column, Entry, listed, said_params

PREFIX: Final = "laxity."
SERVED: Final = "served_predictor.py"
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Trained:
    """One model's fit, what it was made of, and its errors by the name of a metric."""

    fit: ModelFit
    lesson: Lesson
    errors: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return registered_name(self.fit.model)

    @cached_property
    def predictor(self) -> HistoryPredictor:
        return HistoryPredictor((self.fit,))

    @property
    def digest(self) -> str:
        return self.predictor.version


def registered_name(model: str) -> str:
    """A name that the registry takes: one per model key, readable where it can be."""
    plain = _NOT_IN_A_NAME.sub("-", model)
    if plain == model:
        return f"{PREFIX}{model}"
    return f"{PREFIX}{plain}-{sha256(model.encode()).hexdigest()[:8]}"


def entry_of(trained: Trained) -> Entry:
    """The fit of one model key as the registry takes it."""
    model = trained.fit.model
    asked = [Column("long", name, required=False) for name in ("epochs", "batch_size", "samples")]
    return Entry(
        name=trained.name,
        digest=trained.digest,
        predicts=model,
        about=f"How long an epoch of {model} takes: P10, P50, mean and P90.",
        description=description_of(trained),
        fit=trained.predictor.to_json(),
        served=SERVED,
        inputs=(Column("long", "workers"), *asked),
        outputs=(*(Column("double", name) for name in QUANTILES), Column("string", "source")),
        params=params_of(trained),
        metrics=metrics_of(trained),
    )


def params_of(trained: Trained) -> dict[str, str]:
    """What a fit was trained on, in words; instants in UTC."""
    lesson = trained.lesson
    said: dict[str, object] = {
        "model": trained.fit.model,
        "digest": trained.digest,
        "runs": lesson.runs,
        "epochs": lesson.epochs,
        "settings": len(trained.fit.settings),
        "widths": listed(lesson.widths),
        "batch_sizes": listed(lesson.batch_sizes),
        "nodes": listed(lesson.nodes),
        "samples": listed(lesson.samples),
        "first_epoch_at": _instant(lesson.first_at),
        "last_epoch_at": _instant(lesson.last_at),
    }
    return said_params(said)


def metrics_of(trained: Trained) -> dict[str, float]:
    """Errors of the backtests, and how much runs and epochs differ."""
    fit = trained.fit
    spread = {"fit/spread_of_runs": fit.spread2**0.5, "fit/noise_of_epochs": fit.noise2**0.5}
    return {**trained.errors, **spread}


def description_of(trained: Trained) -> str:
    lesson, errors = trained.lesson, trained.errors
    said = (
        f"Trained on {lesson.epochs} epochs of {lesson.runs} runs, {listed(lesson.widths)} workers."
    )
    if "error/median_ape" in errors:
        said += (
            f" Of {errors['error/n']:.0f} past runs, each predicted from the others: median error "
            f"{100 * errors['error/median_ape']:.1f} %, {100 * errors['coverage/p90']:.0f} % within P90."
        )
    return said


def _instant(at: float) -> str:
    return format_instant(datetime.fromtimestamp(at, UTC)) if at > 0.0 else ""
