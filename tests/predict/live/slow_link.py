"""A training that reads a real file through a slow link: so many bytes a second, by the clock."""

import os
import time
from pathlib import Path

import numpy as np

from laxity import Training

DATA_BYTES = 270 << 20
RATE = 3 << 20  # bytes per second
CHUNK = 1 << 20


def write(path: Path) -> None:
    """Write the data, and have the kernel forget them."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(DATA_BYTES // CHUNK):
            file.write(rng.bytes(CHUNK))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_slowly(training: Training, path: str) -> float:
    """Once over the data in each epoch; the mean byte."""
    total = 0.0
    for _ in training.epochs():
        began_s, read = time.monotonic(), 0
        with training.open(path) as file:
            while chunk := file.read(CHUNK):
                total += float(np.frombuffer(chunk, dtype=np.uint8).sum())
                read += len(chunk)
                time.sleep(max(0.0, began_s + read / RATE - time.monotonic()))
    return total / DATA_BYTES
