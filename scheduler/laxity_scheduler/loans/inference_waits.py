"""How long pods of inference waited for GPUs: from their creation to their node.

A pod counts once, when it gets its node. Those that had one before this process began were counted
by another, or by nobody.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

MOST_ENDED: Final = 10_000  # waits that nobody has taken yet


class InferencePod(NamedTuple):
    """A pod that needs GPUs of the fleet; `bound_at` is None while it waits."""

    uid: str
    created_at: float
    bound_at: float | None


class InferenceWaits:
    """Pods by group, patched with what changed since the last look."""

    def __init__(self, began_at: float = 0.0) -> None:
        self.began_at = began_at
        self._groups: dict[str, dict[str, InferencePod]] = {}
        self._ended: deque[float] = deque(maxlen=MOST_ENDED)

    def update_group(self, group: str, pods: Iterable[InferencePod]) -> None:
        """These are the pods of a group now."""
        before = self._groups.pop(group, {})
        rows = {pod.uid: pod for pod in pods}
        for pod in rows.values():
            last = before.get(pod.uid)
            is_new = last is None or last.bound_at is None
            if is_new and pod.bound_at is not None and pod.bound_at >= self.began_at:
                self._ended.append(max(0.0, pod.bound_at - pod.created_at))
        if rows:
            self._groups[group] = rows

    def clear(self) -> None:
        """There is no fleet any more."""
        self._groups.clear()

    def take_ended(self) -> list[float]:
        """Seconds of each wait that has ended since this was asked last."""
        waits_s = list(self._ended)
        self._ended.clear()
        return waits_s

    def running_s(self, now: float) -> list[float]:
        """Seconds that each pod which waits has waited."""
        pods = [pod for rows in self._groups.values() for pod in rows.values()]
        return [max(0.0, now - pod.created_at) for pod in pods if pod.bound_at is None]
