"""What inference will need: the same slots of yesterday and last week, at a quantile, with head-room.

    forecast(u) = q95 of the demand in the slots around u, a day and a week ago, x (1 + head-room)
    lendable(t) = fleet - max of the forecast over [t, t + horizon]        (Aryl, 4.2; reconstructed)

A day without history is forecast by what is needed now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from laxity_profiler.estimate import Floats
from laxity_scheduler.model.job import DAY_S

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
        lags = [round(period_s / self.slot_s) for period_s in (DAY_S, WEEK_S)]
        places = [
            len(past) - 1 + ahead - lag + shift
            for lag in lags
            for shift in range(-self.around, self.around + 1)
        ]
        same = [float(past[place]) for place in places if 0 <= place < len(past)]
        last = float(past[-1]) if len(past) else 0.0
        known = interpolate_quantile(same, self.quantile) if same else last
        return max(known, 0.0) * (1.0 + self.headroom)

    def peak(self, past: Sequence[float] | Floats) -> float:
        """The most that is forecast from the next slot to the horizon, never below the last need."""
        last = float(past[-1]) if len(past) else 0.0
        return max([last, *self.profile(past)])

    def profile(self, past: Sequence[float] | Floats, *, slots: int = 0) -> list[float]:
        """GPUs forecast for so many slots, the next one first; 0: for each to the horizon."""
        slots = slots or max(1, round(self.horizon_s / self.slot_s))
        return [self.forecast(past, ahead) for ahead in range(1, slots + 1)]


def interpolate_quantile(values: Sequence[float], share: float) -> float:
    """As `numpy.quantile`, to the bit; of a few values it takes a hundredth of the time."""
    ranked = sorted(values)
    place = (len(ranked) - 1) * share
    below = int(place)
    low, high, part = ranked[below], ranked[min(below + 1, len(ranked) - 1)], place - below
    span = high - low
    return low + span * part if part < 0.5 else high - span * (1.0 - part)
