"""What inference will need: the same slots of yesterday and last week, at a quantile, with head-room.

    forecast(u) = q95 of the demand in the slots around u, a day and a week ago, x (1 + head-room)
    lendable(t) = fleet - max of the forecast over [t, t + horizon]        (Aryl, 4.2; reconstructed)

A day without history is forecast by what is needed now. `coverage` is how often the need stayed
below its forecast, counted all along.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints

DAY_S: Final = 86_400.0
WEEK_S: Final = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class SeasonalForecast:
    """How the need of one slot is forecast; `around` slots before and after count as the same."""

    slot_s: float = 600.0
    quantile: float = 0.95
    headroom: float = 0.05
    horizon_s: float = 1_800.0
    around: int = 1

    def forecast(self, past: Sequence[float] | Floats, ahead: int) -> float:
        """GPUs of the slot `ahead` slots after the last of `past`, which are consecutive slots."""
        seen = np.asarray(past, dtype=np.float64)
        lags = [round(period_s / self.slot_s) for period_s in (DAY_S, WEEK_S)]
        places: Ints = np.array(
            [
                len(seen) - 1 + ahead - lag + shift
                for lag in lags
                for shift in range(-self.around, self.around + 1)
            ]
        )
        places = places[(places >= 0) & (places < len(seen))]
        last = float(seen[-1]) if len(seen) else 0.0
        known = float(np.quantile(seen[places], self.quantile)) if len(places) else last
        return max(known, 0.0) * (1.0 + self.headroom)

    def peak(self, past: Sequence[float] | Floats) -> float:
        """The most that is forecast from the next slot to the horizon, never below the last need."""
        last = float(past[-1]) if len(past) else 0.0
        return max([last, *self.profile(past)])

    def profile(self, past: Sequence[float] | Floats, *, slots: int = 0) -> list[float]:
        """GPUs forecast for so many slots, the next one first; 0: for each to the horizon."""
        slots = slots or max(1, round(self.horizon_s / self.slot_s))
        return [self.forecast(past, ahead) for ahead in range(1, slots + 1)]


def measure_coverage(
    needs: Sequence[float] | Floats, method: SeasonalForecast, *, first: int
) -> float:
    """Share of the slots from `first` on in which the need stayed within its forecast."""
    values = np.asarray(needs, dtype=np.float64)
    slots = range(max(1, first), len(values))
    if not slots:
        return float("nan")
    within = [float(values[slot]) <= method.peak(values[:slot]) + 1e-9 for slot in slots]
    return float(sum(within)) / len(within)
