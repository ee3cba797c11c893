"""A fit as a registry shows it: its name there, what it was trained on, and how far off it was."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from typing import Final

from laxity.durations import format_instant
from laxity_profiler.evidence import Lesson
from laxity_profiler.fits import ModelFit
from laxity_profiler.predictor import HistoryPredictor

PREFIX: Final = "laxity."
PARAM_LIMIT: Final = 500
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


def params_of(trained: Trained) -> dict[str, str]:
    """What a fit was trained on, in words; instants in UTC."""
    lesson = trained.lesson
    said = {
        "model": trained.fit.model,
        "digest": trained.digest,
        "runs": lesson.runs,
        "epochs": lesson.epochs,
        "settings": len(trained.fit.settings),
        "widths": _listed(lesson.widths),
        "batch_sizes": _listed(lesson.batch_sizes),
        "samples": _listed(lesson.samples),
        "first_epoch_at": _instant(lesson.first_at),
        "last_epoch_at": _instant(lesson.last_at),
        "laxity": own_version(),
    }
    return {name: str(value)[:PARAM_LIMIT] for name, value in said.items() if str(value)}


def metrics_of(trained: Trained) -> dict[str, float]:
    """Errors of the backtests, and how much runs and epochs differ."""
    fit = trained.fit
    spread = {"fit/spread_of_runs": fit.spread2**0.5, "fit/noise_of_epochs": fit.noise2**0.5}
    return {**trained.errors, **spread}


def description_of(trained: Trained) -> str:
    lesson, errors = trained.lesson, trained.errors
    said = f"Trained on {lesson.epochs} epochs of {lesson.runs} runs, {_listed(lesson.widths)} workers."
    if "error/median_ape" in errors:
        said += (
            f" Of {errors['error/n']:.0f} past runs, each predicted from the others: median error "
            f"{100 * errors['error/median_ape']:.1f} %, {100 * errors['coverage/p90']:.0f} % within P90."
        )
    return said


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(str(value) for value in values)


def _instant(at: float) -> str:
    return format_instant(datetime.fromtimestamp(at, UTC)) if at > 0.0 else ""


def own_version() -> str:
    """Of laxity, which made the fit."""
    return version("laxity")
