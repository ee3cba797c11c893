"""How long nodes of a pool take to come, from a start that needs them until they are there.

Until a pool has shown it often enough what its setting says is counted on at least.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from statistics import quantiles
from typing import Final, NamedTuple

from laxity_scheduler.model.cluster import Coming

KEPT: Final = 50  # the last ones of each pool
ENOUGH: Final = 5  # from so many on they count alone


class Arrival(NamedTuple):
    """Nodes of a pool that came at an instant, so many seconds after the start that they came for."""

    pool: str
    at: float
    seconds: float


class PoolArrivals:
    """The last arrivals of each pool, oldest first."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._unsaved: list[Arrival] = []

    def add(self, arrival: Arrival) -> None:
        self._seconds[arrival.pool].append(arrival.seconds)
        self._unsaved.append(arrival)

    def restore(self, arrivals: Iterable[Arrival]) -> None:
        """Take up those that were kept, oldest first, before anything is added."""
        for arrival in arrivals:
            self._seconds[arrival.pool].append(arrival.seconds)

    def find_unsaved(self) -> list[Arrival]:
        return list(self._unsaved)

    def mark_saved(self, count: int) -> None:
        """The first of the unsaved ones are saved."""
        del self._unsaved[:count]

    def expect(self, pool: str, prior_s: float) -> Coming:
        """When its nodes come: P90 and P50 of what was seen, `prior_s` while that is too little."""
        seen_s = self._seconds.get(pool, ())
        if not seen_s:
            return Coming(pool, prior_s, prior_s)
        tenths = quantiles([*seen_s, *seen_s], n=10, method="inclusive")
        within_s = tenths[8] if len(seen_s) >= ENOUGH else max(prior_s, *seen_s)
        return Coming(pool, within_s, tenths[4])
