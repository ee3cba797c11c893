"""What will happen in a simulated cluster and when: an event heap and a virtual clock."""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from laxity_scheduler.model.job import FOREVER

Event = Callable[[], bool]  # what happens; False: nothing did, as another event has overtaken it


class EventQueue:
    """Events in order of time; those of one instant in the order in which they were added."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Event]] = []
        self._order = 0
        self._wakes: set[float] = set()
        self._looks = 0  # times that a policy asked to be woken; the latest counts

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else FOREVER

    def add(self, at: float, event: Event) -> None:
        self._order += 1
        heappush(self._heap, (at, self._order, event))

    def wake_at(self, at: float) -> None:
        """Let there be an event then (not in the past)."""
        wakes_at = max(at, self.now)
        if wakes_at not in self._wakes:
            self._wakes.add(wakes_at)
            self.add(wakes_at, partial(self._wake, wakes_at))

    def _wake(self, at: float) -> bool:
        self._wakes.discard(at)
        return True

    def look_at(self, at: float) -> None:
        """Wake the policy then, and at no instant that it named before: as the live loop sleeps."""
        self._looks += 1
        if self.now < at < FOREVER:
            self.add(at, partial(self._is_latest_look, self._looks))

    def _is_latest_look(self, look: int) -> bool:
        return look == self._looks

    def advance(self) -> bool:
        """Go to the next instant at which something happens. False: nothing ever will."""
        while self.next_at < FOREVER:
            self.now, happened = max(self.now, self.next_at), False
            while self.next_at <= self.now:
                happened |= self.happen()
            if happened:
                return True
        return False

    def happen(self) -> bool:
        """Let the next event happen. False if it was overtaken."""
        return heappop(self._heap)[2]()
