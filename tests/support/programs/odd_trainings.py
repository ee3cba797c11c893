"""Training functions with threads, children or a loop as few have them."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

from laxity import Training


def forks(training: Training) -> list[int]:
    """Its children are told to end; one ends by an error, one returns from the function."""
    codes = []
    for epoch in training.epochs():
        ready, begun = os.pipe()
        child = os.fork()
        if child == 0:
            if epoch == 1:
                raise ValueError("a child's own")
            if epoch == 2:
                return []
            os.write(begun, b"x")
            signal.pause()
        if epoch > 2:
            os.read(ready, 1)
            os.kill(child, signal.SIGTERM)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return codes


def leaves_a_thread(training: Training) -> str:
    for _ in training.epochs():
        pass
    threading.Thread(target=threading.Event().wait, name="my-uploader").start()
    return "done"


def leaves_a_child(training: Training, *, fails: bool = False) -> str:
    for _ in training.epochs():
        pass
    multiprocessing.get_context("fork").Process(target=threading.Event().wait).start()
    if fails:
        raise ValueError("at the end")
    return "done"


def logs_without_a_loop(training: Training) -> str:
    for step in range(2):
        time.sleep(0.25)
        training.log(loss=1 / (step + 1))
    return "trained"


def keeps_its_own_count(training: Training, ahead: int) -> list[int]:
    """Its own checkpoint is of a later epoch than laxity's."""
    trained = []
    for epoch in training.epochs():
        if epoch <= ahead:
            continue
        time.sleep(0.05)
        trained.append(epoch)
    return trained


def resumes_by_itself(training: Training, stops_at: int = 0) -> int:
    """It keeps a state of its own, which laxity does not know of."""
    assert training.folder
    own, epochs = training.folder / "own.txt", training.epochs()
    done = int(own.read_text()) if own.exists() else 0
    while done < 4:
        next(epochs)
        time.sleep(0.02)
        done += 1
        own.write_text(str(done))
        if done == stops_at:
            raise OSError("stopped")
    return done


def lists_its_epochs(training: Training) -> list[int]:
    """It takes all epochs from the loop before it trains."""
    epochs = list(training.epochs())
    time.sleep(0.05 * len(epochs))
    return epochs


def closes_its_streams(training: Training) -> int:
    """Code that writes into a file of its own until it has ended, as a tee for logs does."""
    with Path(os.devnull).open("w") as both:
        sys.stdout = sys.stderr = both
        for _epoch in training.epochs():
            time.sleep(0.01)
    return training.epoch


def fails_on_closed_streams(training: Training) -> None:
    closes_its_streams(training)
    raise OSError("no export today")


def logs_arrays(training: Training) -> None:
    import numpy as np

    for _epoch in training.epochs():
        training.log(accuracy=np.array([0.5, 0.25]))  # type: ignore[arg-type]
