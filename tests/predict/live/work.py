"""A training of a known amount of work: epochs of equal work, times a factor of the run's own.

`slower_at_half` makes the work of the second half of the epochs grow by that share: a slow-down in
the middle that no clock decides.
"""

import numpy as np

from laxity import Training

PRODUCTS = 250


def work(training: Training, factor: float = 1.0, slower_at_half: float = 0.0) -> float:
    """Matrix products; the number of them decides how long an epoch takes."""
    state = {"sum": np.zeros(1)}
    training.restore(state)
    matrix = np.random.default_rng(0).random((200, 200))
    for epoch in training.epochs():
        pace = 1.0 + slower_at_half * (2 * epoch > training.total_epochs)
        for _ in range(round(PRODUCTS * factor * pace)):
            state["sum"] += (matrix @ matrix)[0, 0]
    return float(state["sum"][0])
