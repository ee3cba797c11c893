"""How much longer an epoch takes on one kind of GPU than on another, from models seen on both.

A model that ran on both kinds in one setting and on one width has the ratio of its two times there.
The middle one of its ratios counts for it, and the middle one of all such models is the factor. With
n models, the spread of a further one in logarithms is

    s^2 = (k s0^2 + sum (r_i - r)^2) / (k + n - 1) * (1 + 1/n)

where s0 is what models differed by on measured tables. With no model seen on both, the kinds are taken
for one, with a spread that is as wide as the ratios of those tables were.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from laxity_profiler.model.calibration import NORMAL_90

EpochTimes = Mapping[Hashable, float]  # seconds, by setting and width

# In logarithms, of 11 models on K80 and P100 (Gavel), and on Azure's and RTX GPUs (Sia).
MODELS_DIFFER: Final = 0.7  # between models, of the ratio of two products
MODELS_WORTH: Final = 2.0  # so many models is that worth
PRODUCTS_DIFFER: Final = 1.1  # of the ratio itself, where nothing is known of it


@dataclass(frozen=True, slots=True)
class ProductFactor:
    """The time of an epoch on one product over that on another, its relative error, by so many models."""

    factor: float = 1.0
    error: float = 0.0
    models: int = 0


SAME: Final = ProductFactor()


class ProductFactors:
    """What models whose histories may teach one another say of the products that they ran on."""

    def __init__(self, models: Iterable[Mapping[str, EpochTimes]] = ()) -> None:
        """Of each model its times by product."""
        self._models = list(models)
        self._products = {product for times in self._models for product in times} - {""}
        self._factors: dict[tuple[str, str], ProductFactor] = {}

    def fill(self, product: str) -> str:
        """The product, or the only one that is known of where nobody says it."""
        return product or (next(iter(self._products)) if len(self._products) == 1 else "")

    def between(self, old: str, new: str) -> ProductFactor:
        """From times on `old` to times on `new`; "" is a product that nobody knows.

        Where at most one is known of, it is taken for that one.
        """
        if old == new or ("" in (old, new) and len(self._products | {old, new} - {""}) <= 1):
            return SAME
        known = self._factors.get((old, new))
        if known is None:
            known = self._factors[old, new] = self._learn(old, new)
        return known

    def _learn(self, old: str, new: str) -> ProductFactor:
        logs = [median(ratios) for times in self._models if (ratios := _logs(times, old, new))]
        if not logs:
            return ProductFactor(1.0, _error_of(PRODUCTS_DIFFER))
        n, middle = len(logs), median(logs)
        squares = sum((log - middle) ** 2 for log in logs)
        assumed = MODELS_WORTH * MODELS_DIFFER * MODELS_DIFFER
        variance = (assumed + squares) / (MODELS_WORTH + n - 1.0) * (1.0 + 1.0 / n)
        return ProductFactor(math.exp(middle), _error_of(math.sqrt(variance)), n)


def _error_of(spread: float) -> float:
    """The relative error whose P90 is that of a log-normal factor (calibration.factor_at)."""
    return math.sinh(NORMAL_90 * spread) / NORMAL_90


def _logs(times: Mapping[str, EpochTimes], old: str, new: str) -> list[float]:
    """Logarithms of ratios of one model, wherever it was measured on both."""
    before, after = times.get(old, {}), times.get(new, {})
    return [math.log(after[place] / before[place]) for place in before if place in after]
