"""What stops and starts cost: fitted on the first half of real events, judged on the second.

    python -m tests.predict.live.overhead runs DIR CSV     examples are preempted by urgent jobs, many times
                                  [--times 24] [--widths 1] [--models softmax-numpy gru-torch]
                                  [--due 2m]
    python -m tests.predict.live.overhead judge CSV

One slot, or as many as the example has workers: a best-effort example trains; an urgent job comes,
takes a slot at the epoch's end and gives it back. The service sees what that cost. One row of the CSV is one event.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal, get_args

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_profiler.history.observations import ObservedStop
from laxity_profiler.overhead.costs import LOCAL, Part, StopCosts, fit_costs
from tests.predict.live.world import HERE, KINDS_OF_TRAINING, Kind, World, best_effort, world
from tests.support.waiting import until

TIMES = 24  # stops of each example
ENDLESS = 100_000
COLUMNS = ("model", "kind", "workers", "seconds", "bytes")
COSTS: dict[str, tuple[Part, ...]] = {"suspend": ("save", "suspend"), "resume": ("resume",)}
Split = Literal["half", "other"]
Key = tuple[str, int, str]  # model, workers, kind
EXAMPLES = ("softmax-numpy", "sgd-sklearn", "gru-torch")


@dataclass(frozen=True, slots=True)
class Judged:
    """One model, width and cost: predicted from the first half, against those of the second.

    `predicted_s` is the usual time, `mean_s` what is expected on average.
    """

    model: str
    workers: int
    cost: str
    predicted_s: float
    mean_s: float
    p90_s: float
    actual_s: tuple[float, ...]

    @property
    def error_of_mean(self) -> float:
        return abs(self.mean_s / fmean(self.actual_s) - 1.0)

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
    parser.add_argument("--due", default="2m", help="of urgent jobs; they wait while they can")
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--widths", nargs="+", type=int, default=[1])
    parser.add_argument("--models", nargs="+", default=EXAMPLES)
    given = parser.parse_args(argv)
    if given.verb == "runs":
        home, table = given.paths
        kinds = [kind for kind in KINDS_OF_TRAINING if kind.model in given.models]
        for kind, width in product(kinds, given.widths):
            with world(home / f"{kind.model}-{width}", slots=width) as opened:
                stop_and_go(opened, kind, times=given.times, width=width, due=given.due)
                with opened.history() as history:
                    append(table, history.stops())
    else:
        for split in get_args(Split):
            print_table(judge(read(given.paths[0]), split), split)


def stop_and_go(opened: World, kind: Kind, *, times: int, width: int = 1, due: str = "2m") -> None:
    """Preempt one example on so many workers so many times."""
    spec = best_effort("victim", kind, batch=kind.batches[-1], widths=(width,), epochs=ENDLESS)
    victim = opened.submit(spec)
    for n in range(times):
        seen = len(opened.epochs(victim))
        until(
            lambda seen=seen: len(opened.epochs(victim)) >= seen + 2,  # type: ignore[misc]
            limit_s=300.0,
            what=f"two more epochs of {kind.model}",
        )
        ended = opened.ended(opened.submit(urgent(f"bump-{n}", due)))
        if ended.state != "finished":
            raise RuntimeError(f"{ended.id} is {ended.state}: {ended.error or ended.reason}")
    opened.client.cancel(victim)


def urgent(name: str, due: str) -> TrainingSpec:
    return TrainingSpec(
        name=name,
        qos=QoS.of(workers=(1,), epoch_estimate="1s", deadline=due),
        model="bump",
        epochs=2,
        entry=f"{HERE}/bump.py:bump",
        idempotency_key=name,
    )


def append(table: Path, stops: Iterable[ObservedStop]) -> None:
    """Add events to a CSV."""
    fresh = not table.exists()
    with table.open("a", newline="") as file:
        rows = csv.writer(file)
        if fresh:
            rows.writerow(COLUMNS)
        for stop in stops:
            rows.writerow([getattr(stop, column) for column in COLUMNS])


def read(table: Path) -> list[ObservedStop]:
    with table.open(newline="") as file:
        return [
            ObservedStop(
                row["model"],
                row["kind"],
                int(row["workers"]),
                float(row["seconds"]),
                int(row["bytes"]) if row["bytes"] else None,
            )
            for row in csv.DictReader(file)
        ]


def judge(stops: Sequence[ObservedStop], split: Split = "half") -> list[Judged]:
    """Fit on one half of the events of each model and kind; the others are the truth.

    "half": the earlier ones teach. "other": every other one does, so that both halves saw the same
    weather; what is left of the error is that of the prediction, not of a changed machine.
    """
    first: list[ObservedStop] = []
    held: dict[Key, list[float]] = {}
    places = sorted({(stop.model, stop.workers) for stop in stops})
    for (model, workers), kind in product(places, ("save", "load", "suspend", "resume")):
        wanted = (model, workers, kind)
        mine = [stop for stop in stops if (stop.model, stop.workers, stop.kind) == wanted]
        half = len(mine) // 2
        first += mine[:half] if split == "half" else mine[::2]
        rest = mine[half:] if split == "half" else mine[1::2]
        held[wanted] = [stop.seconds for stop in rest]
    costs = fit_costs(first, prior=LOCAL)
    return [
        judged
        for (model, workers), cost in product(places, COSTS)
        if (judged := _judged(costs, (model, workers, cost), held)) is not None
    ]


def _judged(costs: StopCosts, place: Key, held: dict[Key, list[float]]) -> Judged | None:
    """A suspend is a save and the stop after it: the mean save is added to each stop."""
    (model, workers, cost), events = place, held[place]
    if len(events) < 3:
        return None
    saves = held[model, workers, "save"] if cost == "suspend" else []
    said = costs.estimate(model, COSTS[cost], workers)
    actual = tuple((fmean(saves) if saves else 0.0) + event for event in events)
    return Judged(model, workers, cost, said.p50_s, said.mean_s, said.p90_s, actual)


def print_table(found: Iterable[Judged], split: Split) -> None:
    """One row per model and cost, in Markdown."""
    out = sys.stdout.write
    out(
        f"\n{split}\n\n| model | workers | cost | held back | usual | mean | measured mean"
        " | error of the mean |"
    )
    out(" mean error of one event | spread of events | within P90 |\n")
    out("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
    for one in found:
        said = f"{one.predicted_s:.2f} s | {one.mean_s:.2f} s"
        actual = f"{said} | {fmean(one.actual_s):.2f} s"
        errors = f"{one.error_of_mean:.1%} | {one.mean_error:.1%} | {one.spread:.1%}"
        out(
            f"| {one.model} | {one.workers} | {one.cost} | {len(one.actual_s)} | {actual} | {errors} |"
        )
        out(f" {one.kept:.0%} |\n")


if __name__ == "__main__":
    main(sys.argv[1:])
