"""Trainings that go wrong in one way each, and one that does not."""

import os
import threading

from laxity import Training


def good(training: Training) -> dict[str, int]:
    done = 0
    for epoch in training.epochs():
        done = epoch
    return {"epochs": done}


def raises(training: Training) -> None:
    for _ in training.epochs():
        raise ValueError("the loss is gone")


def never_enters(training: Training) -> int:
    return training.total_epochs


def leaves(_training: Training) -> None:
    os._exit(0)


def leaves_midway(training: Training) -> None:
    for _ in training.epochs():
        child = os.fork()
        if child == 0:
            os._exit(0)  # as multiprocessing does
        os.waitpid(child, 0)
        os._exit(0)


def endless(training: Training) -> None:
    for _ in training.epochs():
        threading.Event().wait()
