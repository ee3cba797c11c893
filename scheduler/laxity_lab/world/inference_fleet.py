"""The inference nodes of a simulated cluster: what they need, what is lent, what inference lacks.

Its own scheduler is not simulated: inference fills the first of the nodes that are not lent. What
it needs is a forecast of its past; it asks for lent GPUs before the slot that needs them, and where
the forecast was too low, within the reclaim time.
"""

from collections.abc import Sequence
from math import ceil
from typing import Final

from laxity_lab.traces.inference_load import InferenceLoad
from laxity_lab.world.outcome import LoanTotals
from laxity_scheduler.loans.demand_forecast import SeasonalForecast
from laxity_scheduler.model.cluster import InferenceDemand, Pool
from laxity_scheduler.model.job import FOREVER

RECLAIM_S: Final = 300.0  # how long inference can wait for GPUs that it did not foresee


class InferenceFleet:
    """Nodes of equal size. `lends` False: the fleet is there, and keeps to itself."""

    def __init__(
        self,
        names: Sequence[str],
        gpus_per_node: int,
        load: InferenceLoad,
        *,
        lends: bool = True,
        forecast: SeasonalForecast | None = None,
    ) -> None:
        self.names, self.gpus_per_node, self.load, self.lends = names, gpus_per_node, load, lends
        self.method = forecast or SeasonalForecast(slot_s=load.slot_s)
        self.meter = LoanTotals(self.gpus)
        self.lent: set[str] = set()
        self.slot_at = 0.0
        self._slot = -1
        self._needed, self._profile = 0, [0.0]
        self._measured_at = self._began_at = 0.0
        self._short_since: float | None = None

    @property
    def nodes(self) -> list[tuple[str, int]]:
        """(name, GPUs) of each."""
        return [(name, self.gpus_per_node) for name in self.names]

    @property
    def horizon_at(self) -> float:
        """Until when the forecast reaches."""
        return self.slot_at + self.load.slot_s * len(self._profile)

    def pools(self) -> dict[str, Pool]:
        """The pool of each of its nodes."""
        return {name: "loaned" if name in self.lent else "inference" for name in self.names}

    @property
    def gpus(self) -> int:
        return len(self.names) * self.gpus_per_node

    @property
    def _own_gpus(self) -> int:
        return self.gpus - len(self.lent) * self.gpus_per_node

    def begin_slot(self, now: float) -> float:
        """The next slot begins; the instant at which it ends."""
        self.measure(now)
        self._slot += 1
        self.slot_at = now
        needed = ceil(self.load.share(self._slot) * self.gpus - 1e-9)
        if self._slot:
            self.meter.slots += 1
            self.meter.covered_slots += needed <= max(self._needed, ceil(self._profile[0]))
        self._needed = needed
        profile = self.method.profile(self.load.past(self._slot))
        self._profile = [min(1.0, share) * self.gpus for share in profile]
        self._note_shortage(now)
        return now + self.load.slot_s

    def move(self, names: Sequence[str], now: float, *, lent: bool) -> None:
        """Lend these nodes, or take them back."""
        self.measure(now)
        if lent:
            self.lent.update(names)
            self.meter.lent_servers += len(names)
        else:
            self.lent.difference_update(names)
            self.meter.reclaimed_servers += len(names)
        self._note_shortage(now)

    def count_preemption(self) -> None:
        self.meter.preemptions += 1

    def demand(self) -> InferenceDemand | None:
        """What policies see of it; None if nothing is lent."""
        if not self.lends:
            return None
        return InferenceDemand(
            needed_gpus=self._needed,
            forecast_gpus=ceil(max(self._profile)),
            horizon_at=self.horizon_at,
            reclaim_by=self._reclaim_by(),
        )

    def _reclaim_by(self) -> float:
        """When the first lent GPU must be back."""
        if self._short_since is not None:
            return self._short_since + RECLAIM_S
        own = self._own_gpus
        early = next((slot for slot, gpus in enumerate(self._profile, 1) if gpus > own), None)
        return FOREVER if early is None else self.slot_at + early * self.load.slot_s

    def count_used(self) -> dict[str, int]:
        """GPUs that inference uses on each node that is not lent."""
        left, used = self._needed, {}
        for name in self.names:
            if name not in self.lent:
                used[name] = min(left, self.gpus_per_node)
                left -= used[name]
        return used

    def measure(self, now: float) -> None:
        """Count up to now."""
        passed_s, own = now - self._measured_at, self._own_gpus
        self._measured_at = now
        if self._slot < 0:
            self._began_at = now
            return
        self.meter.lent_gpu_s += passed_s * (self.gpus - own)
        self.meter.inference_gpu_s += passed_s * min(self._needed, own)
        self.meter.short_gpu_s += passed_s * max(0, self._needed - own)
        if self._short_since is not None:
            short_s = now - self._short_since
            self.meter.longest_short_s = max(self.meter.longest_short_s, short_s)

    def totals(self, now: float) -> LoanTotals:
        """All that was counted up to now."""
        self.measure(now)
        self.meter.span_s = now - self._began_at
        return self.meter

    def _note_shortage(self, now: float) -> None:
        if self._needed <= self._own_gpus:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
