"""What chains of two methods stand still, compared."""

from typing import Final

import numpy as np

DRAWS: Final = 2_000


def mean_difference(reactive: list[float], ahead: list[float]) -> tuple[float, float, float]:
    """Of means in seconds, with the 95 % interval of a bootstrap over chains."""
    rng = np.random.default_rng(0)
    draws = [
        float(np.mean(rng.choice(ahead, len(ahead))) - np.mean(rng.choice(reactive, len(reactive))))
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(draws, (0.025, 0.975)).tolist()
    return float(np.mean(ahead) - np.mean(reactive)), low, high
