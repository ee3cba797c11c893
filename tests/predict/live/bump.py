"""A short urgent training: it takes somebody else's place and gives it back."""

import numpy as np

from laxity import Training

PRODUCTS = 2_000  # some tenths of a second: a look at the world falls into them


def bump(training: Training) -> float:
    """Some matrix products an epoch."""
    state = {"sum": np.zeros(1)}
    training.restore(state)
    matrix = np.random.default_rng(0).random((150, 150))
    for _ in training.epochs():
        for _ in range(PRODUCTS):
            state["sum"] += (matrix @ matrix)[0, 0]
    return float(state["sum"][0])
