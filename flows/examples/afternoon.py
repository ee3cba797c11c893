"""Small trainings whose epochs get shorter with more workers: an afternoon of a cluster in minutes.

A regression learns for real; each epoch then waits until it has lasted `epoch_s / workers**scaling`, as
if it were long. See docs/measurements/learned.md, "Live on one machine".

laxity submit flows/examples/afternoon.py:train_scaling --name scaling-1
"""

import time

import numpy as np

from laxity import Training, deadline_flow


class Regression:
    """Weights of a line through ten features. All that it learns is in arrays."""

    def __init__(self) -> None:
        self.weights = np.zeros(10)


def fit(training: Training, *, epoch_s: float, scaling: float) -> float:
    """Train for all epochs; the last mean squared error."""
    rows = np.random.default_rng(0).normal(size=(400, 10))
    target = rows @ np.arange(10.0)
    model = Regression()
    training.restore(model)
    for _epoch in training.epochs():
        begin = time.monotonic()
        mine, wanted = training.shard((rows, target), seed=0)
        error = mine @ model.weights - wanted
        model.weights -= 0.1 * mine.T @ error / len(mine)
        training.average(model)
        training.log(loss=float(np.mean(error**2)))
        time.sleep(max(0.0, begin + epoch_s / training.workers**scaling - time.monotonic()))
    return training.last("loss")


@deadline_flow(workers=(1, 2, 4), model="scaling", epochs=25, epoch_estimate="4s")
def train_scaling(training: Training, epoch_s: float = 4.0) -> float:
    """Four workers are 3.5 times as fast as one."""
    return fit(training, epoch_s=epoch_s, scaling=0.9)


@deadline_flow(workers=(1, 2, 4), model="stalling", epochs=25, epoch_estimate="4s")
def train_stalling(training: Training, epoch_s: float = 4.0) -> float:
    """Four workers are 1.3 times as fast as one."""
    return fit(training, epoch_s=epoch_s, scaling=0.2)
