"""What later arrivals do to a finish: how much longer than the queue alone said jobs have taken.

A rollout knows the jobs that are there. Who comes later overtakes some of them, by the policy's order
or by a promise. How much is read from the jobs that ended last: (true time) / (time by the rollout), of
those of the same kind whose time by the rollout was nearest. Short jobs are overtaken less than long.

Where fewer of the P90s that were told lately were kept than nine in ten, or more, the next are told by a
quantile that is higher, or lower, by what was missing.
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MOST_KEPT: Final = 200  # latest ended jobs of a kind
NEAREST: Final = 30
P90: Final = 0.9
LEAST: Final = 12  # fewer teach nothing


@dataclass(frozen=True, slots=True)
class EndedFinish:
    """Seconds from when a job was told its finish: by the queue alone, and as it came."""

    kind: str
    queue_s: float
    took_s: float
    kept: bool = True  # whether it ended by the P90 that it was told


class Overtaking:
    """Lessons in order of the jobs' ends."""

    def __init__(self, lessons: Iterable[EndedFinish] = ()) -> None:
        self._kept: defaultdict[str, deque[tuple[float, float, bool]]] = defaultdict(
            lambda: deque(maxlen=MOST_KEPT)
        )
        for lesson in lessons:
            self.learn(lesson)

    def learn(self, lesson: EndedFinish) -> None:
        if lesson.queue_s > 0.0 and lesson.took_s > 0.0:
            ratio = lesson.took_s / lesson.queue_s
            self._kept[lesson.kind].append((math.log(lesson.queue_s), ratio, lesson.kept))

    def factors(self, kind: str, queue_s: float) -> tuple[float, float] | None:
        """P50 and P90 of the true time over the queue's; None where too few jobs have ended."""
        kept = [*reversed(self._kept[kind])]  # of equals the latest count
        if len(kept) < LEAST or queue_s <= 0.0:
            return None
        here = math.log(queue_s)
        near = sorted(kept, key=lambda each: abs(each[0] - here))[:NEAREST]
        ratios = sorted([ratio for _, ratio, _ in near])
        short = P90 - sum([held for *_, held in kept]) / len(kept)
        return _quantile(ratios, 0.5), _quantile(ratios, P90 + short)


def _quantile(ordered: list[float], share: float) -> float:
    """So that the next one of this kind is no larger with this probability."""
    rank = math.ceil(share * (len(ordered) + 1))
    return ordered[min(rank, len(ordered)) - 1]
