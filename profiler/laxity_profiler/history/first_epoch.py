"""A model in its very first epoch: what it reads is all that is known of it, and it is something.

As soon as one epoch of the model has ended, its history speaks and this is forgotten.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from laxity_profiler.estimate import Workload
from laxity_profiler.history.report_values import LONGEST_S, SHORTEST_S
from laxity_profiler.model.curve import ONE_WIDTH, Curve, Level
from laxity_profiler.model.model_fit import Setting, SettingFit
from laxity_profiler.model.traffic import NotBelieved, Reading, epoch_of

LOG: Final = logging.getLogger(__name__)
NEWS: Final = 0.5  # of its error: an estimate that moved by more is a new one
SURER: Final = 0.8  # times the error: an estimate that is so much surer is a new one


@dataclass(frozen=True, slots=True)
class Seen:
    """What a job reads in its first epoch."""

    uid: str
    workload: Workload
    reading: Reading


@dataclass(frozen=True, slots=True)
class FirstEpochs:
    """Estimates by model, and (uid, why) of those that were not believed."""

    by_model: Mapping[str, tuple[SettingFit, ...]]
    doubted: tuple[tuple[str, str], ...] = ()


def first_epochs(seen: Iterable[Seen]) -> FirstEpochs:
    """For each model and setting the surest estimate."""
    best: dict[str, dict[Setting, SettingFit]] = {}
    doubted = []
    for one in sorted(seen, key=lambda one: one.uid):
        try:
            found = epoch_of(one.reading, one.workload.dataset_bytes)
        except Exception as error:
            LOG.exception("what %s reads in its first epoch cannot be used", one.uid)
            doubted.append((one.uid, f"{type(error).__name__}: {error}"))
            continue
        if isinstance(found, NotBelieved):
            if found.why in ("cached", "read ahead"):
                doubted.append((one.uid, found.why))
            continue
        if not SHORTEST_S <= found.epoch_s <= LONGEST_S:
            doubted.append((one.uid, f"an epoch of {found.epoch_s:.3g} s"))
            continue
        fit = _fit(Setting.of(one.workload), one.reading.width, found.epoch_s, found.error)
        known = best.setdefault(one.workload.model, {})
        if fit.setting not in known or fit.levels[0].error < known[fit.setting].levels[0].error:
            known[fit.setting] = fit
    by_model = {
        model: tuple(sorted(fits.values(), key=lambda fit: repr(fit.setting)))
        for model, fits in sorted(best.items())
    }
    return FirstEpochs(by_model, tuple(doubted))


def is_news(before: tuple[SettingFit, ...], after: tuple[SettingFit, ...]) -> bool:
    """Whether the difference is worth a new version of the predictor."""
    if [fit.setting for fit in before] != [fit.setting for fit in after]:
        return True
    pairs = zip(before, after, strict=True)
    return any(_moved(old.levels[0], new.levels[0]) for old, new in pairs)


def _moved(old: Level, new: Level) -> bool:
    away = abs(new.epoch_s / old.epoch_s - 1.0)
    return old.width != new.width or away > NEWS * old.error or new.error < SURER * old.error


def _fit(setting: Setting, width: int, epoch_s: float, error: float) -> SettingFit:
    scale = epoch_s / ONE_WIDTH.at(width)
    curve = Curve(ONE_WIDTH.alpha * scale, ONE_WIDTH.beta * scale)
    return SettingFit(setting, (Level(width, epoch_s, error, 1, 0),), curve)
