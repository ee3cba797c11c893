"""What the inference fleet needs of its own GPUs: now, soon, and when what is lent must be back.

The value is made by whoever knows the fleet and travels in the snapshot. One that makes no sense is
refused where it is made; one that no longer fits the fleet or the clock is read as the nearest that
does (`lendable_gpus`, `due_at`), and `find_problems` says so.
"""

from dataclasses import dataclass
from math import isnan

from laxity_scheduler.model.job import FOREVER


class DemandError(ValueError):
    """A demand that cannot be: not a number, or negative."""


@dataclass(frozen=True, slots=True)
class InferenceDemand:
    """GPUs that inference needs now, and at most until `horizon_at`, head-room included.

    `reclaim_by` is when GPUs that it needs and that are lent must be back; the past means at once.
    `outlook` looks further: at most so many GPUs are forecast to be needed up to each instant, in
    order. Nothing is lent by it: what is lent rests on the horizon.
    """

    needed_gpus: float
    forecast_gpus: float = 0.0
    horizon_at: float = FOREVER
    reclaim_by: float = FOREVER
    outlook: tuple[tuple[float, float], ...] = ()  # (until_at, GPUs), neither ever falls

    def __post_init__(self) -> None:
        for name in ("needed_gpus", "forecast_gpus"):
            gpus = getattr(self, name)
            if isnan(gpus) or gpus < 0:
                message = f"inference demand: {name} is {gpus}; give a number of GPUs, 0 or more"
                raise DemandError(message)
        for name in ("horizon_at", "reclaim_by"):
            if isnan(getattr(self, name)):
                message = f"inference demand: {name} is not a number; give an instant in seconds"
                raise DemandError(message)

    @property
    def peak_gpus(self) -> float:
        """The most that is needed until the horizon."""
        return max(self.needed_gpus, self.forecast_gpus)

    def lendable_gpus(self, pool_gpus: int) -> float:
        """GPUs of a fleet of so many that may be lent until the horizon."""
        return max(0.0, pool_gpus - self.peak_gpus)

    def idle_until_at(self, gpus: float, pool_gpus: int) -> float:
        """Until when so many of the fleet's GPUs are forecast idle; 0 if they are not even now."""
        if gpus > self.lendable_gpus(pool_gpus):
            return 0.0
        idle = [until_at for until_at, needed in self.outlook if gpus <= pool_gpus - needed]
        return max([self.horizon_at, *idle])

    def due_at(self, now: float) -> float:
        """When lent GPUs must be back, never in the past."""
        return max(now, self.reclaim_by)

    def find_problems(self, pool_gpus: int, now: float) -> list[str]:
        """What does not fit this fleet at this instant, and how it is read instead."""
        problems = []
        if self.peak_gpus > pool_gpus:
            problems.append(
                f"inference needs {self.peak_gpus:g} GPUs and has {pool_gpus}: all are kept for it"
            )
        if self.reclaim_by < now:
            late_s = now - self.reclaim_by
            problems.append(f"GPUs were wanted back {late_s:.0f}s ago: they are wanted back now")
        if self.horizon_at < now:
            problems.append("the forecast has run out: nothing more is lent")
        return problems
