"""Trainings for sweeps: small ones of scikit-learn's digits. As a program it runs a sweep itself."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import laxity
from laxity import Training

EPOCHS = 5
EPOCH_S = 0.3


def train_digits(training: Training, trial: Any) -> float:
    """Every third trial is twice as slow, which no parameter tells."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier

    pixels, labels = load_digits(return_X_y=True)
    alpha = trial.suggest_float("alpha", 1e-5, 1.0, log=True)
    model = {"net": SGDClassifier(alpha=alpha, random_state=0)}
    training.restore(model)
    for _ in training.epochs():
        time.sleep(EPOCH_S * (2 if trial.number % 3 == 2 else 1))
        model["net"].partial_fit(pixels[:1500] / 16, labels[:1500], classes=np.arange(10))
        training.log(accuracy=float(model["net"].score(pixels[1500:] / 16, labels[1500:])))
    return training.last("accuracy")


def train_point(training: Training, alpha: float) -> float:
    for _ in training.epochs():
        time.sleep(EPOCH_S)
        training.log(loss=alpha)
    return alpha


def fail(training: Training, trial: Any) -> float:
    trial.suggest_float("alpha", 0.0, 1.0)
    for _ in training.epochs():
        raise ValueError("this net cannot be built")
    return 0.0


def main(folder: Path, deadline: str, trials: int) -> None:
    """A sweep over the study in this folder; its trials go to a file there."""
    import optuna

    study = optuna.create_study(
        study_name="killed",
        storage=f"sqlite:///{folder}/study.db",
        direction="maximize",
        pruner=optuna.pruners.NopPruner(),
        load_if_exists=True,
    )
    result = laxity.sweep(
        study, train_digits, deadline=deadline, trials=trials, epochs=EPOCHS, model="digits"
    )
    rows = [(trial.number, trial.outcome, trial.job) for trial in result.trials]
    (folder / "rows.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
