"""A model that was never trained here borrows from those like it, and says how unsure that is.

Models are alike if they belong to one namespace and their names share a stem (resnet50 and
resnet18, mlp-digits and mlp-letters); what is shared is like what is shared.
Their epoch times are scaled by the work of an epoch, samples x parameters, as far as both are
known; how much they disagree after that is the error, and it is never small.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from laxity_profiler.model.epoch_curve import interpolate_curve
from laxity_profiler.model.inputs import ONE_RELATIVE
from laxity_profiler.model.model_fit import ModelFit, SettingFit, WorkloadSetting
from laxity_profiler.model.products import ProductFactors
from laxity_profiler.model_key import SHARED, model_of, pool_of

LEAST_ERROR: Final = 0.4
MOST_ERROR: Final = 2.0
NOT_COMPARABLE: Final = 0.3  # more if the work of an epoch is not known of both
MOST: Final = 7
_WORD: Final = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Borrowed:
    """An epoch time on this many workers in seconds, its relative error, from so many epochs."""

    epoch_s: float
    error: float
    n: int


def family_of(key: str) -> str:
    """The family of a model's key: its namespace and the first word of its name; "" for none."""
    match = _WORD.search(model_of(key).removeprefix(SHARED))
    stem = match.group().lower() if match else ""
    return pool_of(key) + stem if len(stem) > 1 else ""


def find_relatives(model: str, fits: Sequence[ModelFit]) -> list[ModelFit]:
    """Other models of the same family; none for a model without one."""
    family = family_of(model)
    if not family:
        return []
    return [fit for fit in fits if fit.model != model and family_of(fit.model) == family]


def borrow_epoch_time(
    wanted: WorkloadSetting, width: int, family: Sequence[ModelFit], products: ProductFactors
) -> Borrowed | None:
    """What the relatives say, or None if there are none. The middle one of the nearest counts."""
    if not family:
        return None
    rows = sorted(
        (
            _relative_row(fit, setting, wanted, width, products)
            for fit in family
            for setting in fit.settings
        ),
        key=lambda row: (row[1], row[2]),
    )[:MOST]
    times = sorted(row[0] for row in rows)
    half = len(times) // 2
    middle = times[half] if len(times) % 2 else (times[half - 1] + times[half]) / 2.0
    error = ONE_RELATIVE
    if len(times) > 1:
        squares = sum(((time - middle) / middle) ** 2 for time in times)
        error = math.sqrt(squares / (len(times) - 1) + 0.5 / len(times))
    error = max(LEAST_ERROR, error) + min(row[1] for row in rows)
    return Borrowed(middle, min(MOST_ERROR, error), sum(fit.n for fit in family))


def _relative_row(
    fit: ModelFit,
    fit_setting: SettingFit,
    wanted: WorkloadSetting,
    width: int,
    products: ProductFactors,
) -> tuple[float, float, str]:
    """(seconds, what the missing comparison adds to the error, name for a stable order)."""
    epoch_s, _ = interpolate_curve(fit_setting.levels, fit_setting.curve, width)
    product = products.between(fit_setting.setting.gpu_type, wanted.gpu_type)
    factor, compared = product.factor, 0
    pairs = (
        (fit_setting.setting.samples, wanted.samples),
        (fit_setting.setting.parameters, wanted.parameters),
    )
    for old, new in pairs:
        if old and new:
            factor *= new / old
            compared += 1
    unknown = NOT_COMPARABLE * (1.0 - compared / len(pairs)) + product.error
    return epoch_s * factor, unknown, fit.model
