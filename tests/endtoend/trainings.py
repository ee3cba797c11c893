"""Trainings that go wrong in one way each, and one that does not."""

import threading
from typing import Any

from laxity import Training


def good(training: Training) -> dict[str, int]:
    done = 0
    for epoch in training.epochs():
        done = epoch
    return {"epochs": done}


def raises(training: Training) -> None:
    for _ in training.epochs():
        raise ValueError("the loss is gone")


def unsayable(training: Training) -> Any:
    for _ in training.epochs():
        pass
    return {"model": object()}


def endless(training: Training) -> None:
    for _ in training.epochs():
        threading.Event().wait()
