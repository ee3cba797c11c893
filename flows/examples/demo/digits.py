"""What the demo trains: a small network that reads the handwritten digits of scikit-learn.

Real gradient descent in NumPy on one core. An epoch is `passes` times over the worker's shard of
the data, so that two workers need half the time and `training.average` makes one model of theirs.
"""

import gzip
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laxity import Training, deadline_flow

Floats = NDArray[np.float64]

EXECUTIONS: Final = "executions.txt"  # in the checkpoint folder, a line for each epoch trained
SIDE: Final = 8
PIXELS: Final = SIDE * SIDE
CLASSES: Final = 10
BATCH: Final = 64
HELD_OUT: Final = 297  # images that nobody trains on
RATE: Final = 0.01
MOMENTUM: Final = 0.9


@deadline_flow(workers=(1, 2), model="demo-digits", epochs=20)
def train_digits(training: Training, passes: int = 4, hidden: int = 128) -> float:
    """Train for the declared epochs of `passes` times over the data; the accuracy on unseen images."""
    images, unseen = make_lesson(load_digits())
    model = Classifier(hidden)
    training.restore(model)
    for epoch in training.epochs():
        shard = training.shard(images)
        loss = model.train(shard, passes=passes, seed=epoch)
        training.average(model)
        training.log(loss=loss, accuracy=model.accuracy(unseen))
        record_execution(training, epoch)
    return training.last("accuracy")


def record_execution(training: Training, epoch: int) -> None:
    """Note that an epoch was trained to its end: the demo counts that none is lost or done twice."""
    if training.rank == 0 and training.folder is not None:
        with (training.folder / EXECUTIONS).open("a", encoding="ascii") as file:
            file.write(f"{epoch}\n")


def load_digits() -> Floats:
    """All 1,797 images with their labels: shape (1797, 65), pixels from 0 to 1, the label last.

    Read from scikit-learn's own file without importing it: that alone takes seconds.
    """
    sklearn = find_spec("sklearn")
    if sklearn is None or not sklearn.submodule_search_locations:
        message = "the demo's data comes with scikit-learn: pip install '.[all]' in laxity's clone"
        raise ModuleNotFoundError(message)
    path = Path(sklearn.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt", encoding="ascii") as file:
        rows = np.loadtxt(file, delimiter=",")
    rows[:, :PIXELS] /= 16.0
    return rows[np.random.default_rng(0).permutation(len(rows))]


def make_lesson(rows: Floats) -> tuple[Floats, Floats]:
    """Images to train on, each in nine positions, and images to be tested on: (13500, 65), (297, 65)."""
    training_rows, held_out = rows[HELD_OUT:], rows[:HELD_OUT]
    moved = [
        shift_images(training_rows, right, down) for right in (-1, 0, 1) for down in (-1, 0, 1)
    ]
    return np.concatenate(moved), held_out


def shift_images(rows: Floats, right: int, down: int) -> Floats:
    """Every image moved by whole pixels; what leaves at one edge is lost, not brought back."""
    images = rows[:, :PIXELS].reshape(-1, SIDE, SIDE)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    part = padded[:, 1 - down : 1 - down + SIDE, 1 - right : 1 - right + SIDE]
    return np.hstack([part.reshape(-1, PIXELS), rows[:, PIXELS:]])


class Classifier:
    """Two layers, trained by stochastic gradient descent with momentum. All state is in arrays."""

    def __init__(self, hidden: int = 128, *, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.w1 = rng.normal(0.0, (2.0 / PIXELS) ** 0.5, (PIXELS, hidden))
        self.b1 = np.zeros(hidden)
        self.w2 = rng.normal(0.0, (1.0 / hidden) ** 0.5, (hidden, CLASSES))
        self.b2 = np.zeros(CLASSES)
        self.speed = [np.zeros_like(part) for part in (self.w1, self.b1, self.w2, self.b2)]

    def scores(self, pixels: Floats) -> tuple[Floats, Floats]:
        """The hidden layer and the outputs, of shapes (n, hidden) and (n, 10)."""
        middle = np.maximum(pixels @ self.w1 + self.b1, 0.0)
        return middle, middle @ self.w2 + self.b2

    def train(self, rows: Floats, *, passes: int, seed: int) -> float:
        """Go `passes` times over the rows; the mean cross-entropy of the last batches, in nats."""
        loss = 0.0
        for batch in draw_batches(rows, passes=passes, seed=seed):
            pixels, labels = batch[:, :PIXELS], batch[:, PIXELS].astype(int)
            middle, scores = self.scores(pixels)
            chance = np.exp(scores - scores.max(1, keepdims=True))
            chance /= chance.sum(1, keepdims=True)
            right = chance[np.arange(len(batch)), labels]
            loss += 0.05 * (float(-np.log(right + 1e-12).mean()) - loss)
            chance[np.arange(len(batch)), labels] -= 1.0
            self._step(pixels, middle, chance)
        return loss

    def accuracy(self, rows: Floats) -> float:
        """The share of the rows that are told right."""
        _, scores = self.scores(rows[:, :PIXELS])
        return float((scores.argmax(1) == rows[:, PIXELS]).mean())

    def _step(self, pixels: Floats, middle: Floats, wrong: Floats) -> None:
        """One step against `wrong`, the loss's gradient at the outputs, shape (n, 10)."""
        back = (wrong @ self.w2.T) * (middle > 0.0)
        slopes = (pixels.T @ back, back.sum(0), middle.T @ wrong, wrong.sum(0))
        for part, speed, slope in zip(
            (self.w1, self.b1, self.w2, self.b2), self.speed, slopes, strict=True
        ):
            np.subtract(MOMENTUM * speed, RATE / len(pixels) * slope, out=speed)
            np.add(part, speed, out=part)


def draw_batches(rows: Floats, *, passes: int, seed: int) -> Iterator[Floats]:
    """All batches of all passes, each pass in another order."""
    rng = np.random.default_rng(seed)
    for _ in range(passes):
        order = rng.permutation(len(rows))
        for start in range(0, len(rows), BATCH):
            yield rows[order[start : start + BATCH]]


def measure_pass_s(*, trials: int = 5) -> float:
    """How long one pass over the lesson takes here on one core that has nothing else to do.

    CPU time, the least of a few trials: other programs do not count.
    """
    rows, _ = make_lesson(load_digits())
    model, taken = Classifier(), []
    for trial in range(trials):
        began = time.process_time()
        model.train(rows, passes=1, seed=trial)
        taken.append(time.process_time() - began)
    return min(taken)


if __name__ == "__main__":
    print(measure_pass_s())
