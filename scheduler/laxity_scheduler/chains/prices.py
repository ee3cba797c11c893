"""What an hour of interruption and an hour of overlap cost a user."""

import math
from dataclasses import dataclass

import numpy as np

from laxity_profiler.estimate import Floats


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour costs: of interruption, and of overlap. Only their ratio decides."""

    interruption: float = 1.0
    overlap: float = 1.0

    @classmethod
    def parse(cls, text: str) -> "Prices":
        """`4:1`. ValueError if it is not two positive numbers."""
        try:
            interruption, overlap = (float(part) for part in text.split(":"))
        except ValueError:
            interruption = overlap = math.nan
        if not (0 < interruption < math.inf and 0 < overlap < math.inf):
            raise ValueError(f"--prices {text!r}: interruption and overlap, such as 4:1")
        return cls(interruption, overlap)

    def cost(self, difference_h: Floats, weights: Floats) -> Floats:
        """Expected cost, (n,), of differences (n, k) with these probabilities (k,)."""
        late, early = np.maximum(difference_h, 0.0), np.maximum(-difference_h, 0.0)
        expected: Floats = (self.interruption * late + self.overlap * early) @ weights
        return expected
