"""Examples to learn from: what was known at a probe, and what its submission led to.

A start every four hours, seven probes each, as in Mirage. Jobs that the log submits after the end of
the training period are not played: the last successors meet a queue that drains. Starts are kept
apart by weeks, since starts close together share jobs: a fold holds whole weeks.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.features import WINDOW, Windows, watch_queue
from laxity_scheduler.chains.queue_log import QueueLog
from laxity_scheduler.chains.successor import DAY_S, Pair, PairSettings
from laxity_scheduler.frame.arrays import Ints

PROBES: Final = 7
FOLDS: Final = 5
FORMAT: Final = "laxity-samples-1"


@dataclass(frozen=True, slots=True)
class Samples:
    """n probes: the instants at which their starts began, what was known, hours of difference."""

    began_at: Floats
    windows: Windows
    difference_h: Floats

    def __len__(self) -> int:
        return len(self.difference_h)

    def rows(self, rows: Ints) -> "Samples":
        return Samples(self.began_at[rows], self.windows.rows(rows), self.difference_h[rows])

    @property
    def wait_h(self) -> Floats:
        """How long the successors waited, to within the ten minutes of a snapshot."""
        return np.maximum(0.0, self.difference_h + self.windows.left_h)


def collect_samples(
    log: QueueLog, settings: PairSettings, starts: Iterable[float], probes: int = PROBES
) -> Samples:
    """Simulate the probes of each start. ValueError if no probe has a day of history before it."""
    parts = [probe_start(Pair(log, began_at, settings), probes) for began_at in starts]
    if not sum(len(part) for part in parts):
        raise ValueError("no probe has a day of history before it; choose a longer --warm-up")
    windows = [part.windows for part in parts]
    return Samples(
        np.concatenate([part.began_at for part in parts]),
        Windows(
            np.concatenate([part.queue for part in windows]),
            np.concatenate([part.wait_h for part in windows]),
            np.concatenate([part.elapsed_h for part in windows]),
            np.concatenate([part.left_h for part in windows]),
        ),
        np.concatenate([part.difference_h for part in parts]),
    )


def probe_start(pair: Pair, probes: int) -> Samples:
    """The probes of one start that have a day of history before them and a successor that starts."""
    history = watch_queue(pair)
    instants = pair.even_instants(probes)
    rows = np.array([history.row_at(instant) for instant in instants], dtype=np.int64)
    hours = np.array([probe.difference_h for probe in pair.probe(instants)], dtype=np.float64)
    usable = (rows >= WINDOW - 1) & np.isfinite(hours)
    began_at = np.full(int(usable.sum()), pair.began_at)
    return Samples(began_at, history.windows(rows[usable]), hours[usable])


def week_folds(began_at: Floats, seed: int, folds: int = FOLDS) -> Ints:
    """The fold of each sample, (n,): whole weeks, dealt out by the seed."""
    weeks, week = np.unique(began_at // (7 * DAY_S), return_inverse=True)
    dealt = np.random.default_rng(seed).permutation(len(weeks)) % folds
    of_sample: Ints = dealt[week]
    return of_sample


def save_samples(samples: Samples, about: Mapping[str, Any], path: Path) -> None:
    """Write a file that holds arrays only; `about` says of what."""
    windows = samples.windows
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            about=json.dumps({"format": FORMAT, **about}, sort_keys=True),
            began_at=samples.began_at,
            queue=windows.queue,
            wait_h=windows.wait_h,
            elapsed_h=windows.elapsed_h,
            left_h=windows.left_h,
            difference_h=samples.difference_h,
        )


def load_samples(path: Path, about: Mapping[str, Any]) -> Samples:
    """Read such a file. ValueError if it is none, or of something else."""
    wanted = json.dumps({"format": FORMAT, **about}, sort_keys=True)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            description = str(file["about"])
            if description != wanted:
                raise ValueError(f"{path} holds other samples: {description}; wanted: {wanted}")
            names = ("queue", "wait_h", "elapsed_h", "left_h")
            windows = Windows(*(file[name] for name in names))
            return Samples(file["began_at"], windows, file["difference_h"])
    except (OSError, KeyError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} holds no samples: {error}") from error
