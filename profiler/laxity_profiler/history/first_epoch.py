"""A model in its very first epoch: what it reads is all that is known of it, and it is something.

As soon as one epoch of the model has ended, its history speaks and this is forgotten.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from laxity_profiler.estimate import Workload
from laxity_profiler.history.faults import OnFault, log_fault
from laxity_profiler.history.report_values import LONGEST_S, SHORTEST_S
from laxity_profiler.model.epoch_curve import ONE_WIDTH, Level, WidthCurve
from laxity_profiler.model.model_fit import SettingFit, WorkloadSetting
from laxity_profiler.model.traffic import NotBelieved, Reading, epoch_from_reading

NEWS: Final = 0.5  # of its error: an estimate that moved by more is a new one
SURER: Final = 0.8  # times the error: an estimate that is so much surer is a new one


@dataclass(frozen=True, slots=True)
class FirstEpochReading:
    """What a job reads in its first epoch."""

    uid: str
    workload: Workload
    reading: Reading


@dataclass(frozen=True, slots=True)
class FirstEpochs:
    """Estimates by model, and (uid, why) of those that were not believed."""

    by_model: Mapping[str, tuple[SettingFit, ...]]
    doubts: tuple[tuple[str, str], ...] = ()


def first_epochs(
    readings: Iterable[FirstEpochReading], on_fault: OnFault = log_fault
) -> FirstEpochs:
    """For each model and setting the surest estimate; `on_fault` records what one job's raised."""
    best: dict[str, dict[WorkloadSetting, SettingFit]] = {}
    doubts = []
    for reading in sorted(readings, key=lambda reading: reading.uid):
        try:
            estimate = epoch_from_reading(reading.reading, reading.workload.dataset_bytes)
        except Exception as error:  # noqa: BLE001 - recorded with its traceback
            on_fault("first epoch", reading.uid, error)
            doubts.append((reading.uid, f"{type(error).__name__}: {error}"))
            continue
        if isinstance(estimate, NotBelieved):
            if estimate.why in ("cached", "read ahead"):
                doubts.append((reading.uid, estimate.why))
            continue
        if not SHORTEST_S <= estimate.epoch_s <= LONGEST_S:
            doubts.append((reading.uid, f"an epoch of {estimate.epoch_s:.3g} s"))
            continue
        fit = _fit_reading(
            WorkloadSetting.of(reading.workload),
            reading.reading.width,
            estimate.epoch_s,
            estimate.error,
        )
        surest = best.setdefault(reading.workload.model, {})
        if fit.setting not in surest or fit.levels[0].error < surest[fit.setting].levels[0].error:
            surest[fit.setting] = fit
    by_model = {
        model: tuple(sorted(fits.values(), key=lambda fit: repr(fit.setting)))
        for model, fits in sorted(best.items())
    }
    return FirstEpochs(by_model, tuple(doubts))


def is_news(before: tuple[SettingFit, ...], after: tuple[SettingFit, ...]) -> bool:
    """Whether the difference is worth a new version of the predictor."""
    if [fit.setting for fit in before] != [fit.setting for fit in after]:
        return True
    pairs = zip(before, after, strict=True)
    return any(_has_moved(old.levels[0], new.levels[0]) for old, new in pairs)


def _has_moved(old: Level, new: Level) -> bool:
    away = abs(new.epoch_s / old.epoch_s - 1.0)
    return old.width != new.width or away > NEWS * old.error or new.error < SURER * old.error


def _fit_reading(setting: WorkloadSetting, width: int, epoch_s: float, error: float) -> SettingFit:
    scale = epoch_s / ONE_WIDTH.epoch_s(width)
    curve = WidthCurve(ONE_WIDTH.alpha * scale, ONE_WIDTH.beta * scale)
    return SettingFit(setting, (Level(width, epoch_s, error, 1, 0),), curve)
