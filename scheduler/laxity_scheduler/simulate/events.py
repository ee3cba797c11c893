"""What will happen in a simulated cluster and when: an event heap and a virtual clock."""

from heapq import heappop, heappush
from typing import Literal

from laxity_scheduler.model.job import FOREVER

Kind = Literal["job", "gone", "failure", "repair", "wake", "look", "slot"]


class EventQueue:
    """Events in order of time; those of one instant in the order in which they were added."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Kind, str, int]] = []
        self._order = 0
        self._wakes: set[float] = set()
        self._looks = 0  # times that a policy asked to be woken; the latest counts

    @property
    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else FOREVER

    def add(self, at: float, kind: Kind, name: str, version: int = 0) -> None:
        self._order += 1
        heappush(self._heap, (at, self._order, kind, name, version))

    def wake_at(self, at: float) -> None:
        """Let there be an event then (not in the past)."""
        wakes_at = max(at, self.now)
        if wakes_at not in self._wakes:
            self._wakes.add(wakes_at)
            self.add(wakes_at, "wake", "")

    def look_at(self, at: float) -> None:
        """Wake the policy then, and at no instant that it named before: as the live loop sleeps."""
        self._looks += 1
        if self.now < at < FOREVER:
            self.add(at, "look", "", self._looks)

    def is_overtaken(self, look: int) -> bool:
        """Whether the policy has decided again since."""
        return look != self._looks

    def pop(self) -> tuple[Kind, str, int]:
        """The next event: its kind, its job or node, and the job's version that it was for."""
        event_at, _, kind, name, version = heappop(self._heap)
        if kind == "wake":
            self._wakes.discard(event_at)
        return kind, name, version
