"""A training of epochs that last as long as they are told, and leave evidence of each."""

import atexit
import os
import threading
from pathlib import Path

from laxity import Training

EPOCHS = 32  # more than two links train
HURRY = "hurry"  # where this file is, an epoch takes no time
STUCK = "stuck"  # where this file is, an epoch takes for ever
BROKEN = "broken"  # where this file is, the training fails
SLOW_TO_CLOSE = "slow to close"  # where this file is, the process stays when all is trained


def linked(training: Training, folder: str = "", epoch_s: float = 1.0) -> dict[str, int]:
    """`starts` has a line of each process, `epochs` one of each epoch that was trained."""
    place, pace, state = Path(folder), threading.Event(), {"epochs": 0}
    training.restore(state)
    _write_line(place / "starts", f"{os.getpid()} {state['epochs']}")
    for epoch in training.epochs():
        if (place / BROKEN).exists():
            raise ValueError("the data has gone")
        pace.wait(_length_s(place, epoch_s))
        state["epochs"] = epoch
        training.log(trained=epoch)  # what logs nothing and takes no time was not trained
        _write_line(place / "epochs", str(epoch))
    if (place / SLOW_TO_CLOSE).exists():
        atexit.register(pace.wait)
    return state


def _length_s(place: Path, epoch_s: float) -> float:
    """How long the epoch that begins takes."""
    if (place / HURRY).exists():
        return 0.0
    return 1e6 if (place / STUCK).exists() else epoch_s


def _write_line(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")
