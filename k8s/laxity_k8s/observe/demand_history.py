"""How many GPUs inference needed, slot by slot, and how many it may need soon.

The history is kept in memory: a restart forgets it. Until a day of it is there the forecast is the
need of the last two slots, a quarter more, and room for one more pod in any case (our own margins).
"""

from collections import deque
from itertools import islice
from typing import Final

from laxity_scheduler.loans.demand_forecast import DAY_S, WEEK_S, SeasonalForecast

FIRST_HEADROOM: Final = 0.25  # of the need, while no day of history is there
RECENT_SLOTS: Final = 2  # a need that fell a moment ago may be back in the next


class DemandHistory:
    """The greatest need of each slot, the running one last; what nobody changed stayed as it was."""

    def __init__(self, method: SeasonalForecast | None = None) -> None:
        self.method = method or SeasonalForecast()
        self._slots: deque[float] = deque(maxlen=round((DAY_S + WEEK_S) / self.method.slot_s))
        self._slot = 0  # number of the running one since the epoch
        self._last_gpus = 0.0

    def add(self, gpus: float, now: float) -> None:
        """So many GPUs are needed from now on."""
        slot = int(now // self.method.slot_s)
        missed = slot - self._slot if self._slots else 1
        for _ in range(min(missed, self._slots.maxlen or 1)):
            self._slots.append(self._last_gpus if self._slots else gpus)
        self._slots[-1] = max(self._slots[-1], gpus)
        self._slot, self._last_gpus = max(slot, self._slot), gpus

    @property
    def slot_end_at(self) -> float:
        """When the running slot ends."""
        return (self._slot + 1) * self.method.slot_s

    @property
    def horizon_at(self) -> float:
        """Until when the forecast reaches."""
        return self.slot_end_at + self.method.horizon_s

    def forecast_gpus(self, largest_pod: int) -> float:
        """The most that may be needed up to the horizon, head-room included."""
        start = max(0, len(self._slots) - RECENT_SLOTS)
        recent = max(islice(self._slots, start, None), default=0.0)
        if len(self._slots) > round(DAY_S / self.method.slot_s):
            return max(recent, self.method.peak(self._slots))
        return recent + max(float(largest_pod), FIRST_HEADROOM * recent)
