"""How long to wait before something that failed is tried again."""

import random
from dataclasses import dataclass
from typing import Final

CHANCE: Final = random.SystemRandom()  # the training's own seeded numbers stay as they are


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow from `first_s` up to `longest_s`, each `growth` times the one before.

    `spread` is the share of each wait that is random: many clients do not come back in one beat.
    """

    first_s: float = 1.0
    longest_s: float = 60.0
    spread: float = 0.0
    growth: float = 2.0

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row; none after none."""
        if failures < 1:
            return 0.0
        delay_s = min(self.longest_s, self.first_s * self.growth ** min(failures - 1, 64))
        return delay_s * CHANCE.uniform(1.0 - self.spread, 1.0)
