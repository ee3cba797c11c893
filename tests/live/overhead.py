"""What stops and starts cost: fitted on the first half of real events, judged on the second.

    python -m tests.live.overhead runs DIR CSV     examples are preempted by urgent jobs, many times
    python -m tests.live.overhead judge CSV

One slot: a best-effort example trains; an urgent job comes, takes the slot at the epoch's end and
gives it back. The service sees what that cost. One row of the CSV is one event.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Literal, get_args

from laxity.qos import QoS
from laxity.spec import TrainingSpec
from laxity_profiler.overhead import LOCAL, Costs, Part, fit_costs
from laxity_profiler.said import StopSeen
from tests.live.world import HERE, KINDS_OF_TRAINING, Kind, World, best_effort, until, world

TIMES = 24  # stops of each example
ENDLESS = 100_000
COLUMNS = ("model", "kind", "workers", "seconds", "bytes")
COSTS: dict[str, tuple[Part, ...]] = {"suspend": ("save", "suspend"), "resume": ("resume",)}
Split = Literal["half", "other"]
EXAMPLES = ("softmax-numpy", "sgd-sklearn", "gru-torch")


@dataclass(frozen=True, slots=True)
class Judged:
    """One model and cost: predicted from the first half, against the events of the second."""

    model: str
    cost: str
    predicted_s: float
    p90_s: float
    actual_s: tuple[float, ...]

    @property
    def error_of_mean(self) -> float:
        return abs(self.predicted_s / fmean(self.actual_s) - 1.0)

    @property
    def mean_error(self) -> float:
        """Of single events: what one event differs from the next bounds it from below."""
        return fmean(abs(self.predicted_s / actual - 1.0) for actual in self.actual_s)

    @property
    def spread(self) -> float:
        """Relative standard deviation of the held-back events."""
        return stdev(self.actual_s) / fmean(self.actual_s)

    @property
    def kept(self) -> float:
        return fmean(actual <= self.p90_s for actual in self.actual_s)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("runs", "judge"))
    parser.add_argument("paths", nargs="+", type=Path)
    given = parser.parse_args(argv)
    if given.verb == "runs":
        home, table = given.paths
        for kind in KINDS_OF_TRAINING:
            if kind.model in EXAMPLES:
                with world(home / kind.model, slots=1) as opened:
                    stop_and_go(opened, kind, times=TIMES)
                    append(table, opened.history().stops())
    else:
        for split in get_args(Split):
            print_table(judge(read(given.paths[0]), split), split)


def stop_and_go(opened: World, kind: Kind, *, times: int) -> None:
    """Preempt one example so many times."""
    spec = best_effort("victim", kind, batch=kind.batches[-1], widths=(1,), epochs=ENDLESS)
    victim = opened.submit(spec)
    for n in range(times):
        seen = len(opened.epochs(victim))
        until(
            lambda seen=seen: len(opened.epochs(victim)) >= seen + 2,  # type: ignore[misc]
            limit_s=300.0,
            what=f"two more epochs of {kind.model}",
        )
        ended = opened.ended(opened.submit(urgent(f"bump-{n}")))
        if ended.state != "finished":
            raise RuntimeError(f"{ended.id} is {ended.state}: {ended.error or ended.reason}")
    opened.client.cancel(victim)


def urgent(name: str) -> TrainingSpec:
    return TrainingSpec(
        name=name,
        qos=QoS.of(workers=(1,), epoch_estimate="1s", deadline="2m"),
        model="bump",
        epochs=2,
        entry=f"{HERE}/bump.py:bump",
        idempotency_key=name,
    )


def append(table: Path, stops: Iterable[StopSeen]) -> None:
    """Add events to a CSV."""
    fresh = not table.exists()
    with table.open("a", newline="") as file:
        rows = csv.writer(file)
        if fresh:
            rows.writerow(COLUMNS)
        for stop in stops:
            rows.writerow([getattr(stop, column) for column in COLUMNS])


def read(table: Path) -> list[StopSeen]:
    with table.open(newline="") as file:
        return [
            StopSeen(
                row["model"],
                row["kind"],
                int(row["workers"]),
                float(row["seconds"]),
                int(row["bytes"]) if row["bytes"] else None,
            )
            for row in csv.DictReader(file)
        ]


def judge(stops: Sequence[StopSeen], split: Split = "half") -> list[Judged]:
    """Fit on one half of the events of each model and kind; the others are the truth.

    "half": the earlier ones teach. "other": every other one does, so that both halves saw the same
    weather; what is left of the error is that of the prediction, not of a changed machine.
    """
    first: list[StopSeen] = []
    held: dict[tuple[str, str], list[float]] = {}
    for model in sorted({stop.model for stop in stops}):
        for kind in ("save", "load", "suspend", "resume"):
            mine = [stop for stop in stops if (stop.model, stop.kind) == (model, kind)]
            half = len(mine) // 2
            first += mine[:half] if split == "half" else mine[::2]
            rest = mine[half:] if split == "half" else mine[1::2]
            held[model, kind] = [stop.seconds for stop in rest]
    costs = fit_costs(first, prior=LOCAL)
    return [
        judged
        for model in sorted({model for model, _ in held})
        for cost in COSTS
        if (judged := _judged(costs, model, cost, held)) is not None
    ]


def _judged(
    costs: Costs, model: str, cost: str, held: dict[tuple[str, str], list[float]]
) -> Judged | None:
    """A suspend is a save and the stop after it: the typical save is added to each stop."""
    events = held[model, cost]
    if len(events) < 3:
        return None
    save_s = median(held[model, "save"]) if cost == "suspend" and held[model, "save"] else 0.0
    said = costs.estimate(model, COSTS[cost])
    actual = tuple(save_s + event for event in events)
    return Judged(model, cost, said.p50_s, said.p90_s, actual)


def print_table(found: Iterable[Judged], split: Split) -> None:
    """One row per model and cost, in Markdown."""
    out = sys.stdout.write
    out(
        f"\n{split}\n\n| model | cost | held back | predicted | measured mean | error of the mean |"
    )
    out(" mean error of one event | spread of events | within P90 |\n")
    out("|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
    for one in found:
        actual = f"{one.predicted_s:.2f} s | {fmean(one.actual_s):.2f} s"
        errors = f"{one.error_of_mean:.1%} | {one.mean_error:.1%} | {one.spread:.1%}"
        out(f"| {one.model} | {one.cost} | {len(one.actual_s)} | {actual} | {errors} |")
        out(f" {one.kept:.0%} |\n")


if __name__ == "__main__":
    main(sys.argv[1:])
