"""scikit-learn's linear classifier learns handwritten digits, one `partial_fit` per mini-batch.

With w workers each takes every w-th image and batches of `batch_size` / w; the coefficients are
averaged at the end of the epoch.
"""

import numpy as np
from numpy.typing import NDArray

from laxity import Training, deadline_flow

HELD_OUT = 297
COPIES = 6  # of each image that is not held out, with noise


def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images of 64 pixels from 0 to 1 and what they show; the first 297 are held out."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    images, labels = pixels[order] / 16.0, labels[order]
    copies = np.tile(images[HELD_OUT:], (COPIES, 1))
    copies += np.random.default_rng(1).normal(0.0, 0.1, copies.shape)
    rows = np.concatenate([images[:HELD_OUT], copies])
    return rows, np.concatenate([labels[:HELD_OUT], *[labels[HELD_OUT:]] * COPIES])


@deadline_flow(
    deadline="20m",
    workers=(1, 2),
    model="sgd-sklearn",
    epochs=10,
    epoch_estimate="2s",
    samples=9_000,
)
def train_sgd(training: Training, batch_size: int = 256, alpha: float = 1e-4) -> float:
    """Train for all epochs; the accuracy on held-out images."""
    from sklearn.linear_model import SGDClassifier

    rows, labels = digits()
    model = SGDClassifier(loss="log_loss", alpha=alpha, random_state=0)
    model.partial_fit(rows[:100], labels[:100], classes=np.arange(10))  # now it has all its arrays
    training.restore(model)
    for _epoch in training.epochs():
        mine, truth = training.shard((rows[HELD_OUT:], labels[HELD_OUT:]), seed=0)
        size = max(1, batch_size // training.workers)
        for start in range(0, len(mine), size):
            model.partial_fit(mine[start : start + size], truth[start : start + size])
        training.average(model)
        training.log(accuracy=model.score(rows[:HELD_OUT], labels[:HELD_OUT]))
    return training.last("accuracy")


if __name__ == "__main__":
    print(train_sgd())
