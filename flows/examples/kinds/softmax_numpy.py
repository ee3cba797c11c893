"""Softmax regression in plain NumPy on data made from a seed; mini-batches of a global size.

With w workers each takes every w-th row and batches of `batch_size` / w; the weights are averaged
at the end of the epoch (local SGD).
"""

import numpy as np
from numpy.typing import NDArray

from laxity import Training, deadline_flow

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

ROWS, FEATURES, CLASSES = 60_000, 512, 20
HELD_OUT = 2_000


def data() -> tuple[Floats, Labels]:
    """Rows around one centre per class, overlapping."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, ROWS + HELD_OUT)
    centres = rng.normal(0.0, 0.25, (CLASSES, FEATURES)).astype(np.float32)
    rows = rng.standard_normal((len(labels), FEATURES), dtype=np.float32)
    return rows + centres[labels], labels


def chances(weights: Floats, rows: Floats) -> Floats:
    """Probability of each class, shape (n, CLASSES)."""
    scores = rows @ weights
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


@deadline_flow(
    deadline="20m",
    workers=(1, 2),
    model="softmax-numpy",
    epochs=10,
    epoch_estimate="2s",
    samples=ROWS,
)
def train_softmax(training: Training, batch_size: int = 256, rate: float = 0.05) -> float:
    """Train for all epochs; the accuracy on held-out rows."""
    rows, labels = data()
    state = {"weights": np.zeros((FEATURES, CLASSES), dtype=np.float32)}
    training.restore(state)
    for _epoch in training.epochs():
        weights = state["weights"]
        mine, truth = training.shard((rows[HELD_OUT:], labels[HELD_OUT:]), seed=0)
        size = max(1, batch_size // training.workers)
        for start in range(0, len(mine), size):
            part, wanted = mine[start : start + size], truth[start : start + size]
            wrong = chances(weights, part)
            wrong[np.arange(len(part)), wanted] -= 1.0
            weights -= rate / len(part) * (part.T @ wrong)
        training.average(state)
        right = chances(weights, rows[:HELD_OUT]).argmax(axis=1) == labels[:HELD_OUT]
        training.log(accuracy=float(right.mean()))
    return training.last("accuracy")


if __name__ == "__main__":
    print(train_softmax())
