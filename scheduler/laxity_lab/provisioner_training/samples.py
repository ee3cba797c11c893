"""Examples to learn from: what was known at a probe, and what its submission led to.

A start every four hours, seven probes each, as in Mirage; for policies a probe each hour of the
predecessor's run. A probe submits at the instant of a snapshot, so that both speak of one queue. Jobs
that the log submits after the end of the training period are not played: the last successors meet a
queue that drains. Starts are kept apart by weeks, since starts close together share jobs: a fold
holds whole weeks.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from laxity_lab.batch_queue.queue_log import QueueLog
from laxity_lab.batch_queue.successor import Pair, PairSettings, watch_queue
from laxity_profiler.estimate import Floats
from laxity_scheduler.array_file import load_arrays, refuse_damage, save_arrays
from laxity_scheduler.chains.features import WINDOW, Windows
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.model.job import DAY_S, HOUR_S

PROBES: Final = 7
FOLDS: Final = 5
FORMAT: Final = "laxity-samples"
VERSION: Final = 3
MOST_BYTES: Final = 16 << 30
WINDOWS: Final = ("queue", "wait_h", "elapsed_h", "left_h")
Instants = Callable[[Pair], list[float]]  # of a start's probes


def even_probes(pair: Pair) -> list[float]:
    """Mirage's seven of a start."""
    return pair.even_instants(PROBES)


def hourly_probes(pair: Pair) -> list[float]:
    """Each hour from the predecessor's start to its end, both among them."""
    hours = round(pair.settings.limit_s / HOUR_S)
    return [pair.started_at + HOUR_S * hour for hour in range(hours)] + [pair.ended_at]


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
        """How long the successors waited from when the predecessor had `left_h` to go.

        That is from the submission while the predecessor runs; while it waits itself, from its start,
        since nobody knows then how long it will wait.
        """
        return np.maximum(0.0, self.difference_h + self.windows.left_h)


def collect_samples(
    log: QueueLog,
    settings: PairSettings,
    starts: Iterable[float],
    instants: Instants = even_probes,
) -> Samples:
    """Simulate the probes of each start. ValueError if no probe has a day of history before it."""
    parts = [probe_start(Pair(log, began_at, settings), instants) for began_at in starts]
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


def probe_start(pair: Pair, instants: Instants) -> Samples:
    """The probes of one start that have a day of history before them and a successor that starts.

    Each submits at the last snapshot up to its instant.
    """
    history = watch_queue(pair)
    rows = np.array([history.row_at(instant) for instant in instants(pair)], dtype=np.int64)
    rows = rows[rows >= WINDOW - 1]
    probes = pair.probe(history.taken_at[rows].tolist())
    hours = np.array([probe.difference_h for probe in probes], dtype=np.float64)
    usable = np.isfinite(hours)
    began_at = np.full(int(usable.sum()), pair.began_at)
    return Samples(began_at, history.windows(rows[usable]), hours[usable])


def week_folds(began_at: Floats, seed: int) -> Ints:
    """The fold of each sample, (n,): whole weeks, dealt out by the seed. ValueError if too few."""
    weeks, week = np.unique(began_at // (7 * DAY_S), return_inverse=True)
    dealt = np.random.default_rng(seed).permutation(len(weeks)) % FOLDS
    if len(weeks) < FOLDS:
        raise ValueError(f"the starts span {len(weeks)} weeks: {FOLDS} at least, to hold one out")
    of_sample: Ints = dealt[week]
    return of_sample


def save_samples(samples: Samples, about: Mapping[str, Any], path: Path) -> None:
    """Write a file that holds arrays only; `about` says of what. OSError if that fails."""
    header = {"format": FORMAT, "version": VERSION, "about": dict(about)}
    columns = {name: getattr(samples.windows, name) for name in WINDOWS}
    columns |= {"began_at": samples.began_at, "difference_h": samples.difference_h}
    save_arrays(path, header, columns)


def load_samples(path: Path, about: Mapping[str, Any]) -> Samples:
    """Read such a file. ValueError if it is none, or of something else."""
    with refuse_damage(f"{path} holds no samples of version {VERSION}"):
        header, arrays = load_arrays(path, FORMAT, VERSION, most_bytes=MOST_BYTES)
        windows = Windows(*(arrays[name] for name in WINDOWS))
        samples = Samples(arrays["began_at"], windows, arrays["difference_h"])
        found = header["about"]
    if found != dict(about):
        raise ValueError(f"{path} holds other samples: {found}; wanted: {dict(about)}")
    return samples


@dataclass(frozen=True, slots=True)
class Episodes:
    """Predecessors' lives in `steps` of an hour, as policies learn from them.

    Each step knows what submitting would lead to: `cost` is (starts, steps). The last one is the
    predecessor's end, where everybody submits.
    """

    samples: Samples
    steps: int
    cost: Floats

    def __len__(self) -> int:
        return len(self.cost)

    def part(self, chosen: Ints) -> "Episodes":
        """Some of the starts, in this order."""
        rows = (chosen[:, None] * self.steps + np.arange(self.steps)).ravel()
        return Episodes(self.samples.rows(rows), self.steps, self.cost[chosen])

    @property
    def difference_h(self) -> Floats:
        """(starts, steps)."""
        return self.samples.difference_h.reshape(-1, self.steps)

    @property
    def began_at(self) -> Floats:
        """(starts,)."""
        return self.samples.began_at[:: self.steps]

    def chosen_steps(self, submits: Bools) -> Ints:
        """Where a policy submits, (starts,), by what it would do at each step, (starts, steps)."""
        last = np.ones((len(self), 1), dtype=np.bool_)
        steps: Ints = np.argmax(np.concatenate((submits[:, :-1], last), axis=1), axis=1)
        return steps


def as_episodes(samples: Samples, prices: Prices) -> Episodes:
    """Episodes of hourly samples; starts of which a step is missing are left out.

    ValueError if none is left.
    """
    _, start, counts = np.unique(samples.began_at, return_inverse=True, return_counts=True)
    steps = int(counts.max(initial=0))
    whole = samples.rows(np.flatnonzero(counts[start] == steps))
    if steps < 2:
        raise ValueError("no start has two hourly probes; choose a longer --limit")
    cost = prices.cost(whole.difference_h[:, None], np.ones(1))
    return Episodes(whole, steps, cost.reshape(-1, steps))
