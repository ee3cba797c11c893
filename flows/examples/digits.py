"""A small neural network in plain NumPy learns handwritten digits, under a deadline.

laxity up                                   # a service on this machine
python flows/examples/digits.py             # a Prefect flow: promised or refused, then followed
LAXITY_ALONE=1 python flows/examples/digits.py     # the same training, here and now
"""

import numpy as np
from numpy.typing import NDArray

from laxity import Training, deadline_flow

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

CLASSES = 10
HELD_OUT = 297  # images that nobody trains on
BATCH = 32


class Network:
    """64 pixels, one hidden layer, ten digits. All that it learns is in arrays."""

    def __init__(self, hidden: int, *, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.w1 = rng.normal(0.0, 0.18, (64, hidden))
        self.b1 = np.zeros(hidden)
        self.w2 = rng.normal(0.0, hidden**-0.5, (hidden, CLASSES))
        self.b2 = np.zeros(CLASSES)

    def chances(self, pixels: Floats) -> tuple[Floats, Floats]:
        """The hidden layer, and the probability of each digit: shapes (n, hidden) and (n, 10)."""
        middle = np.maximum(pixels @ self.w1 + self.b1, 0.0)
        scores = middle @ self.w2 + self.b2
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return middle, odds / odds.sum(axis=1, keepdims=True)

    def fit(self, pixels: Floats, labels: Labels, *, rate: float) -> float:
        """Once over the images in batches; the mean cross-entropy in nats."""
        loss = 0.0
        for start in range(0, len(pixels), BATCH):
            rows, truth = pixels[start : start + BATCH], labels[start : start + BATCH]
            middle, chance = self.chances(rows)
            right = chance[np.arange(len(rows)), truth]
            loss -= float(np.log(right + 1e-12).sum())
            wrong = chance
            wrong[np.arange(len(rows)), truth] -= 1.0
            wrong /= len(rows)
            back = (wrong @ self.w2.T) * (middle > 0.0)
            self.w2 -= rate * middle.T @ wrong
            self.b2 -= rate * wrong.sum(axis=0)
            self.w1 -= rate * rows.T @ back
            self.b1 -= rate * back.sum(axis=0)
        return loss / len(pixels)

    def accuracy(self, pixels: Floats, labels: Labels) -> float:
        """The share of the images that are told right."""
        return float((self.chances(pixels)[1].argmax(axis=1) == labels).mean())


def digits() -> tuple[Floats, Labels]:
    """1,797 images of 8 x 8 pixels from 0 to 1, mixed, and what they show."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    return pixels[order] / 16.0, labels[order]


@deadline_flow(
    deadline="20m", workers=(1, 2, 4), model="mlp-digits", epochs=30, epoch_estimate="5s"
)
def train_digits(training: Training, hidden: int = 64, rate: float = 0.1) -> dict[str, float]:
    """Train for all epochs; loss and accuracy on held-out images."""
    pixels, labels = digits()
    network = Network(hidden)
    training.restore(network)  # nothing to put back on the first start
    for _epoch in training.epochs():  # times, saves, reports; waits here when told to stop
        mine = training.shard((pixels[HELD_OUT:], labels[HELD_OUT:]), seed=0)
        loss = network.fit(*mine, rate=rate)
        training.average(network)  # the mean over all workers
        accuracy = network.accuracy(pixels[:HELD_OUT], labels[:HELD_OUT])
        training.log(loss=loss, accuracy=accuracy)
    return {"loss": training.last("loss"), "accuracy": training.last("accuracy")}


if __name__ == "__main__":
    print(train_digits(hidden=128))
