"""How many GPUs inference needed, slot by slot, and how many it may need soon.

Until a day of history is there the forecast is the need of the last two slots, a quarter more, and
room for one more pod in any case (our own margins). Each slot also keeps the forecast that was in
force when it began, so that it is measured all along how often the need stayed within it.
"""

from collections import deque
from collections.abc import Iterable
from itertools import accumulate, islice
from math import inf, isnan, nan
from typing import Final, NamedTuple

from laxity_scheduler.loans.demand_forecast import WEEK_S, SeasonalForecast
from laxity_scheduler.model.job import DAY_S

FIRST_HEADROOM: Final = 0.25  # of the need, while no day of history is there
RECENT_SLOTS: Final = 2  # a need that fell a moment ago may be back in the next


class DemandSlot(NamedTuple):
    """The greatest need of a slot, numbered since the epoch.

    `forecast_gpus` was in force when it began; NaN if nobody looked in the slot before.
    """

    slot: int
    needed_gpus: float
    forecast_gpus: float


class DemandHistory:
    """The greatest need of each slot, the running one last; what nobody changed stayed as it was."""

    def __init__(self, method: SeasonalForecast | None = None) -> None:
        self.method = method or SeasonalForecast()
        slots = round((DAY_S + WEEK_S) / self.method.slot_s)
        self._needs: deque[float] = deque(maxlen=slots)
        self._forecasts: deque[float] = deque(maxlen=slots)
        self._slot = 0  # number of the running one since the epoch
        self._last_gpus = 0.0
        self._last_forecast = nan  # made in the running slot
        self._saved: DemandSlot | None = None
        self._outlook: tuple[tuple[float, float], ...] = ()
        self._outlook_slot = -1  # in which it was made

    def add(self, gpus: float, now: float) -> None:
        """So many GPUs are needed from now on."""
        self._begin_slot(int(now // self.method.slot_s), gpus)
        self._needs[-1] = max(self._needs[-1], gpus)
        self._last_gpus = gpus

    def restore(self, slots: Iterable[DemandSlot]) -> None:
        """Take up a history that was kept, oldest first, before anything is added."""
        for row in slots:
            self._begin_slot(row.slot, row.needed_gpus)
            self._needs[-1], self._forecasts[-1] = row.needed_gpus, row.forecast_gpus
            self._last_gpus = row.needed_gpus
        self.mark_saved()

    def find_unsaved(self) -> list[DemandSlot]:
        """Slots that are new or have changed since they were saved, oldest first."""
        rows = list(map(DemandSlot, self._numbers(), self._needs, self._forecasts))
        if not rows or self._saved is None or self._saved.slot < rows[0].slot:
            return rows
        since = self._saved.slot - rows[0].slot
        return rows[since + (rows[since].needed_gpus == self._saved.needed_gpus) :]

    def mark_saved(self) -> None:
        """All slots are saved as they are now."""
        if self._needs:
            self._saved = DemandSlot(self._slot, self._needs[-1], self._forecasts[-1])

    @property
    def first_slot(self) -> int:
        """The number of the oldest slot that is kept."""
        return self._numbers().start

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
        start = max(0, len(self._needs) - RECENT_SLOTS)
        recent = max(islice(self._needs, start, None), default=0.0)
        if self._has_day:
            self._last_forecast = max(recent, self.method.peak(self._needs))
        else:
            self._last_forecast = recent + max(float(largest_pod), FIRST_HEADROOM * recent)
        return self._last_forecast

    def outlook(self) -> tuple[tuple[float, float], ...]:
        """(until_at, GPUs): the most that is forecast up to then, for a day; empty of no history.

        Made once a slot, and only where the need rises: at most one row a slot.
        """
        if not self._has_day:
            return ()
        if self._outlook_slot != self._slot:
            self._outlook_slot, self._outlook = self._slot, self._forecast_day()
        return self._outlook

    def _forecast_day(self) -> tuple[tuple[float, float], ...]:
        slot_s, first = self.method.slot_s, self._slot + 1
        needs = self.method.profile(self._needs, slots=round(DAY_S / slot_s))
        peaks = list(accumulate(needs, max))
        rises = zip(peaks, [*peaks[1:], inf], strict=True)
        return tuple(
            [
                ((number + 1) * slot_s, peak)
                for number, (peak, later) in enumerate(rises, start=first)
                if later > peak
            ]
        )

    @property
    def _has_day(self) -> bool:
        return len(self._needs) > round(DAY_S / self.method.slot_s)

    def coverage(self) -> tuple[float, int]:
        """Share of the slots in which the need stayed within its forecast, and how many those are.

        Slots count that have ended and had a forecast. NaN of none.
        """
        ended = islice(zip(self._needs, self._forecasts, strict=True), max(0, len(self._needs) - 1))
        within = [need <= forecast + 1e-9 for need, forecast in ended if not isnan(forecast)]
        return (sum(within) / len(within) if within else nan), len(within)

    def _begin_slot(self, slot: int, gpus: float) -> None:
        """Open this slot, and those before it in which nobody looked."""
        missed = slot - self._slot if self._needs else 1
        for _ in range(min(missed, self._needs.maxlen or 1)):
            self._needs.append(self._last_gpus if self._needs else gpus)
            self._forecasts.append(self._last_forecast if missed == 1 else nan)
        if missed > 0:
            self._last_forecast = nan
        self._slot = max(slot, self._slot)

    def _numbers(self) -> range:
        return range(self._slot + 1 - len(self._needs), self._slot + 1)
