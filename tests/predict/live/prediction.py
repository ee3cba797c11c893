"""Six real trainings at four batch sizes and two widths: four profiled runs against the truth.

    python -m tests.predict.live.prediction runs DIR CSV     train them all, several times, in mixed order
                                    [--repeats 2] [--epochs 8] [--models mlp-torch cnn-torch]
    python -m tests.predict.live.prediction judge CSV        predict the other points from four, and compare

Each point is trained `REPEATS` times at different moments; how much these differ is the noise that
bounds any prediction. One row of the CSV is one epoch.
"""

import argparse
import csv
import math
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from laxity_profiler.model.scaling import StepTime, four_points
from tests.predict.live.world import KINDS_OF_TRAINING, Kind, World, best_effort, world

EPOCHS = 8
REPEATS = 2
WIDTHS = (1, 2)
COLUMNS = ("model", "batch", "width", "repeat", "epoch", "epoch_s", "cpu_s")
Clock = Literal["epoch_s", "cpu_s"]
Key = tuple[int, int, int]  # batch, width, repeat


@dataclass(frozen=True, slots=True)
class Judged:
    """One model by one clock: errors at the held-out points, and how far equal runs differ."""

    model: str
    errors: tuple[float, ...]
    noise: float  # median |one run / another run of the same point - 1|

    @property
    def mean(self) -> float:
        return fmean(self.errors)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("runs", "judge"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--models", nargs="+", default=[kind.model for kind in KINDS_OF_TRAINING])
    given = parser.parse_args(argv)
    if given.verb == "runs":
        home, table = given.paths
        kinds = [kind for kind in KINDS_OF_TRAINING if kind.model in given.models]
        with world(home) as opened:
            train_all(opened, table, kinds=kinds, repeats=given.repeats, epochs=given.epochs)
    else:
        for clock in ("epoch_s", "cpu_s"):
            print_table(judge(given.paths[0], clock), clock)


def train_all(
    opened: World,
    table: Path,
    *,
    kinds: Sequence[Kind] = KINDS_OF_TRAINING,
    repeats: int = REPEATS,
    epochs: int = EPOCHS,
    seed: int = 0,
) -> None:
    """Every point, one job at a time, in an order that mixes models and repeats."""
    points = [
        (repeat, kind, batch, width)
        for repeat in range(repeats)
        for kind in kinds
        for batch in kind.batches
        for width in WIDTHS
    ]
    random.Random(seed).shuffle(points)
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for repeat, kind, batch, width in points:
            name = f"{kind.model}-b{batch}-w{width}-r{repeat}"
            for row in train(opened, name, kind, batch=batch, width=width, epochs=epochs):
                rows.writerow((kind.model, batch, width, repeat, *row))
            file.flush()


def train(
    opened: World, name: str, kind: Kind, *, batch: int, width: int, epochs: int = EPOCHS
) -> Iterable[tuple[int, float, float]]:
    """One run: (epoch, seconds, CPU seconds of worker 0), without the warm-up."""
    spec = best_effort(name, kind, batch=batch, widths=(width,), epochs=epochs)
    ended = opened.ended(opened.submit(spec))
    if ended.state != "finished":
        raise RuntimeError(f"{name} is {ended.state}: {ended.error or ended.reason}")
    for line in opened.epochs(ended.id):
        if not line["warmup"]:
            yield line["epoch"], line["epoch_s"], line["metrics"]["cpu_s"]


def judge(table: Path, clock: Clock) -> list[Judged]:
    """Predict from the first run of four points; the truth is the mean over all runs of a point."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    for kind in KINDS_OF_TRAINING:
        epochs: dict[Key, list[float]] = {}
        for row in rows:
            if row["model"] == kind.model:
                key = (int(row["batch"]), int(row["width"]), int(row["repeat"]))
                epochs.setdefault(key, []).append(float(row[clock]))
        points = {key[:2] for key in epochs}
        if {(batch, width) for batch in kind.batches for width in WIDTHS} <= points:
            found.append(_judged(kind, {key: median(times) for key, times in epochs.items()}))
        else:
            sys.stderr.write(f"{kind.model} has {len(points)} points: not all were trained\n")
    return found


def _judged(kind: Kind, runs: Mapping[Key, float]) -> Judged:
    points = sorted({key[:2] for key in runs})
    batches, widths = {point[0] for point in points}, {point[1] for point in points}
    profiled = four_points(sorted(batches), sorted(widths))
    steps = {point: math.ceil(kind.samples / point[0]) for point in points}
    first = {point: next(runs[key] for key in sorted(runs) if key[:2] == point) for point in points}
    model = StepTime().fit(profiled, [first[point] / steps[point] for point in profiled])
    held = [point for point in points if point not in profiled]
    errors = []
    for point, step_s in zip(held, model.predict(held), strict=True):
        truth = fmean(time for key, time in runs.items() if key[:2] == point)
        errors.append(abs(float(step_s) * steps[point] / truth - 1.0))
    noise = [
        abs(runs[*point, 1] / runs[*point, 0] - 1.0)
        for point in points
        if (*point, 1) in runs and (*point, 0) in runs
    ]
    return Judged(kind.model, tuple(errors), median(noise) if noise else math.nan)


def print_table(found: Iterable[Judged], clock: Clock) -> None:
    """One row per model, in Markdown."""
    found = list(found)
    out = sys.stdout.write
    out(f"\n{clock}\n\n| model | held out | mean error | worst | equal runs differ by |\n")
    out("|---|---:|---:|---:|---:|\n")
    for one in found:
        errors = f"{len(one.errors)} | {one.mean:.1%} | {max(one.errors):.1%}"
        out(f"| {one.model} | {errors} | {one.noise:.1%} |\n")
    every = [error for one in found for error in one.errors]
    out(f"\nmedian {median(every):.1%}, mean {fmean(every):.1%} of {len(every)} points\n")


if __name__ == "__main__":
    main(sys.argv[1:])
