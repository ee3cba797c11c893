"""What the workers of real pods train: a regression whose course is the same at every width.

A step of full-batch gradient descent is the mean of the workers' steps, weighted by their rows. So
an epoch that was lost, doubled or averaged wrongly shows in the weights at the end. How long an
epoch takes is said by a file, which a test rewrites to hold training up or to hurry it.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from laxity import Training
from laxity.worker.training import run_of

ROWS, COLUMNS = 300, 4
RATE = 0.1


class Line:
    """Weights of a linear model."""

    def __init__(self) -> None:
        self.weights = np.zeros(COLUMNS)

    def step(self, data: Any) -> float:
        """One step down the gradient of the mean squared error; the error before it."""
        inputs, targets = data
        off = inputs @ self.weights - targets
        self.weights -= RATE * (inputs.T @ off) / len(targets)
        return float(np.mean(off**2))


def table() -> tuple[Any, Any]:
    draw = np.random.default_rng(11)
    inputs = draw.normal(size=(ROWS, COLUMNS))
    return inputs, inputs @ np.arange(1.0, COLUMNS + 1) + draw.normal(size=ROWS) / 10


def weights_after(epochs: int) -> list[float]:
    """Where a training on one worker, never disturbed, has come to."""
    line, data = Line(), table()
    for _ in range(epochs):
        line.step(data)
    found: list[float] = line.weights.tolist()
    return found


def paced(training: Training, folder: str) -> dict[str, Any]:
    """Train; `folder` holds the pace (seconds of an epoch on one worker) and what was done."""
    line = Line()
    training.restore(line)
    return _train(training, folder, line)


def forgetful(training: Training, folder: str) -> dict[str, Any]:
    """The same, but its author forgot to give the weights to restore()."""
    return _train(training, folder, Line())


def _train(training: Training, folder: str, line: Line) -> dict[str, Any]:
    data = table()
    for epoch in training.epochs():
        began = time.monotonic()
        _note(folder, training, "began", epoch)
        share = training.shard(data)
        loss = line.step(share)
        while time.monotonic() < began + _pace_s(folder) / training.workers:
            time.sleep(0.02)
        training.average(line, weight=len(share[1]))
        training.log(loss=loss)
        _note(folder, training, "trained", epoch)
    return {"weights": line.weights.tolist(), "loss": training.last("loss")}


def _pace_s(folder: str) -> float:
    try:
        return float((Path(folder) / "pace").read_text())
    except (OSError, ValueError):  # not yet there, or being rewritten
        return 1.0


def _note(folder: str, training: Training, what: str, epoch: int) -> None:
    line = {"what": what, "rank": training.rank, "epoch": epoch, "width": training.workers}
    start, _, _ = run_of(training).formation.partition("-")  # worker 0's starts are counted
    with (Path(folder) / "notes.jsonl").open("a") as file:
        file.write(json.dumps({**line, "start": int(start)}) + "\n")
