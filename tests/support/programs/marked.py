"""A training that leaves evidence: who trained which epoch, and whether two ever did at once.

Run by a worker as a job's entry, and as a Prefect flow by `python marked.py NAME` (one line on
standard output when the flow ends well).
"""

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from laxity import Training, deadline_flow

EPOCHS = 8
WORK = 140  # matrix products an epoch: a few tenths of a second of real work


@deadline_flow(deadline="30m", model="marked", epochs=EPOCHS, epoch_estimate="2s", workers=(1, 2))
def marked(training: Training, name: str = "", folder: str = "") -> dict[str, Any]:
    index = os.environ.get("JOB_COMPLETION_INDEX", "0")
    with (Path(folder) / f"{name}-{index}.lock").open("a") as mine:
        _alone(mine.fileno(), Path(folder) / f"{name}.twice", index)
        state = {"sum": np.zeros(4), "epochs": np.zeros(1)}
        training.restore(state)
        rng = np.random.default_rng(0)
        for epoch in training.epochs():
            matrix = rng.random((180, 180))
            for _ in range(WORK):
                matrix = matrix @ matrix / 180.0
            state["sum"] += 1.0
            state["epochs"][0] = epoch
            training.average(state)
            training.log(loss=1.0 / epoch)
        return {"sum": float(state["sum"][0]), "last": int(state["epochs"][0])}


def _alone(descriptor: int, evidence: Path, index: str) -> None:
    """The lock goes with the process, however it dies; somebody else holding it is the crime."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with evidence.open("a") as crime:
            crime.write(f"worker {index} of this job runs twice\n")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


if __name__ == "__main__":
    called, where = sys.argv[1:3]
    flow = marked.with_qos(idempotency_key=f"crash-{called}", deadline="30m")
    sys.stdout.write(json.dumps(flow(name=called, folder=where)) + "\n")
