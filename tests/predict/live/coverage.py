"""How often live finishes keep their P90: said at the start and at half the run, by the service.

    python -m tests.predict.live.coverage runs DIR CSV [--finishes 60] [--taught 20]
    python -m tests.predict.live.coverage judge CSV

Trainings of seconds, each with a factor of its own; the first ones teach, the others are judged. A
second round has runs that become 30 % slower in the middle. The truth is `finished_s`, when the Job
is complete; `trained_s` ends with the last epoch.
"""

import argparse
import csv
import json
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from sqlalchemy import text

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_profiler.model.calibration import Coverage, wilson_interval
from tests.predict.live.world import HERE, World, world
from tests.support.waiting import until

EPOCHS = 10
TAUGHT = 20
SPREAD = 0.08
TOGETHER = 2
ROUNDS = {"steady": 0.0, "30 % slower in the middle": 0.3}
COLUMNS = (
    "round", "job", "stage", "p10_s", "p50_s", "p90_s", "trained_s", "finished_s", "verdict_kept",
)  # fmt: skip


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("runs", "judge"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--finishes", type=int, default=60)
    parser.add_argument("--taught", type=int, default=TAUGHT)
    given = parser.parse_args(argv)
    if given.verb == "runs":
        home, table = given.paths
        train_all(home, table, finishes=given.finishes, taught=given.taught)
    else:
        print_table(read(given.paths[0]))


def train_all(home: Path, table: Path, *, finishes: int, taught: int = TAUGHT) -> None:
    """All rounds, each with a history of its own."""
    with table.open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS)
        rows.writeheader()
        for number, (name, slower) in enumerate(ROUNDS.items()):
            with world(home / str(number), slots=TOGETHER) as opened:
                for row in finished(opened, slower, finishes=finishes, taught=taught, seed=number):
                    rows.writerow({"round": name} | row)
                    file.flush()


def finished(
    opened: World, slower: float, *, finishes: int, taught: int = TAUGHT, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Train them, as many at a time as there are slots; what was said of those after the lessons."""
    drawn = random.Random(seed)
    names = [f"work-{n}" for n in range(taught + finishes)]
    for start in range(0, len(names), TOGETHER):
        group = names[start : start + TOGETHER]
        jobs = [opened.submit(job(name, drawn.gauss(0.0, SPREAD), slower)) for name in group]
        for name, job_id in zip(group, jobs, strict=True):
            view = opened.ended(job_id)
            if view.state != "finished":
                raise RuntimeError(f"{job_id} is {view.state}: {view.error or view.reason}")
            if names.index(name) >= taught:
                yield from said_of(opened, job_id)


def job(name: str, log_factor: float, slower: float) -> TrainingSpec:
    spec = TrainingSpec(
        name=name,
        qos=QoS.of(workers=(1,), epoch_estimate="1s", deadline="30m", service_class="soft"),
        model="work",
        epochs=EPOCHS,
        entry=f"{HERE}/work.py:work",
        idempotency_key=name,
    )
    parameters = {"factor": math.exp(log_factor), "slower_at_half": slower}
    return replace(spec, parameters=parameters)


def said_of(opened: World, job_id: str) -> Iterator[dict[str, Any]]:
    """The predictions that the service noted of a job, and what became of them."""
    last_at = max(line["at"] for line in opened.epochs(job_id))
    asked = text(
        "select p.stage, p.at, p.p10_s, p.p50_s, p.p90_s, p.actual_s, j.view, j.finished_at"
        " from predictions p join jobs j on j.uid = p.uid"
        " where j.job = :job and j.finished_at is not null and p.actual_s is not null"
    )

    with opened.history() as history:

        def noted() -> Sequence[Any]:
            with history.engine.connect() as connection:
                return connection.execute(asked, {"job": job_id}).all()

        until(lambda: len(noted()) >= 1, limit_s=60.0, what=f"what was said of {job_id}")
        predictions = noted()
    for stage, at, p10_s, p50_s, p90_s, actual_s, view, finished_at in predictions:
        yield {
            "job": job_id,
            "stage": stage,
            "p10_s": p10_s,
            "p50_s": p50_s,
            "p90_s": p90_s,
            "trained_s": last_at - at,
            "finished_s": actual_s,
            "verdict_kept": int(finished_at <= json.loads(view)["first_p90_at"]),
        }


def read(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def covered(rows: Sequence[Mapping[str, str]], stage: str) -> Coverage:
    """Shares of the finishes of one stage within what was said."""
    some = [row for row in rows if row["stage"] == stage]
    shares = [
        fmean(float(row["finished_s"]) <= float(row[name]) for row in some)
        for name in ("p10_s", "p50_s", "p90_s")
    ]
    return Coverage(stage, len(some), *shares)


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """One row per round and stage, in Markdown; the last is the P90 that the user was told."""
    out = sys.stdout.write
    out("| round | said at | n | P10 | P50 | P90 | 95 % interval of P90 |\n")
    out("|---|---|---:|---:|---:|---:|---|\n")
    for name in dict.fromkeys(row["round"] for row in rows):
        mine = [row for row in rows if row["round"] == name]
        for stage in ("start", "half"):
            found = covered(mine, stage)
            low, high = wilson_interval(found.p90, found.n)
            shares = f"{found.p10:.0%} | {found.p50:.0%} | {found.p90:.0%}"
            out(f"| {name} | {stage} | {found.n} | {shares} | {low:.0%} to {high:.0%} |\n")
        kept = [int(row["verdict_kept"]) for row in mine if row["stage"] == "start"]
        verdicts = Coverage("verdict", len(kept), 0.0, 0.0, fmean(kept))
        low, high = wilson_interval(verdicts.p90, verdicts.n)
        out(f"| {name} | verdict | {len(kept)} | - | - | {verdicts.p90:.0%} |")
        out(f" {low:.0%} to {high:.0%} |\n")


if __name__ == "__main__":
    main(sys.argv[1:])
