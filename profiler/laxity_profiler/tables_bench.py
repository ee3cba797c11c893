"""How well four profiled runs predict all the others, on measured tables of throughput.

A table is MODEL.csv: `global_batch_size`, then a column per GPU count, iterations per second; zero,
blank and nan mean "not measured". The four points are chosen from batch sizes and widths only; all
other points of the table are held out, those beyond a node too.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

from laxity_profiler.scaling import GPUS_PER_NODE, StepTime, four_points

NODE_GPUS: Final = {"T4": 4, "A100": 8}
GOOD: Final = 0.10  # mean absolute relative error of a model that counts as predicted
Point = tuple[int, int, float]  # batch size, GPUs, seconds per step


@dataclass(frozen=True, slots=True)
class TableResult:
    """One table: errors are |predicted / measured - 1| at the held-out points."""

    table: str
    profiled: tuple[tuple[int, int], ...]
    errors: tuple[float, ...]
    covered: int  # held-out points whose time is at most the predicted P90

    @property
    def mape(self) -> float:
        return fmean(self.errors) if self.errors else 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """All tables of a folder."""

    tables: tuple[TableResult, ...]

    @property
    def median_ape(self) -> float:
        return median(error for table in self.tables for error in table.errors)

    @property
    def models_under_10pct(self) -> float:
        return fmean(table.mape < GOOD for table in self.tables)

    @property
    def p90_coverage(self) -> float:
        """Share of the held-out points that took no longer than their P90."""
        n = sum(len(table.errors) for table in self.tables)
        return sum(table.covered for table in self.tables) / n

    @property
    def worst(self) -> TableResult:
        return max(self.tables, key=lambda table: table.mape)


def judge_tables(folder: Path) -> Judgement:
    """Every table under a folder, by name. ValueError if there is none to judge."""
    found = (
        judge_table(path, gpus_per_node=node_gpus(path.parent.name))
        for path in sorted(folder.rglob("*.csv"))
    )
    results = [result for result in found if result is not None]
    if not results:
        raise ValueError(f"{folder} holds no table with more than four measured points")
    return Judgement(tuple(results))


def node_gpus(folder: str) -> int:
    """GPUs per node of the machines that a folder's name tells of."""
    return next((gpus for gpu, gpus in NODE_GPUS.items() if gpu in folder), GPUS_PER_NODE)


def judge_table(path: Path, *, gpus_per_node: int = GPUS_PER_NODE) -> TableResult | None:
    """One table; None if it is no table, or has nothing to hold out."""
    measured = {(batch, gpus): seconds for batch, gpus, seconds in read_table(path)}
    if not measured:
        return None
    batches, widths = zip(*measured, strict=True)
    wanted = four_points(batches, widths, gpus_per_node=gpus_per_node)
    profiled = tuple(point for point in wanted if point in measured)
    held = [point for point in measured if point not in profiled]
    if not held or len(profiled) < 2:
        return None
    fitted = StepTime(gpus_per_node=gpus_per_node)
    fitted.fit(profiled, [measured[point] for point in profiled])
    predicted = fitted.predict(held)
    upper = fitted.predict_p90(held)
    actual = [measured[point] for point in held]
    return TableResult(
        f"{path.parent.name}/{path.stem}",
        profiled,
        tuple(abs(p / a - 1.0) for p, a in zip(predicted, actual, strict=True)),
        sum(bool(a <= up) for up, a in zip(upper, actual, strict=True)),
    )


def read_table(path: Path) -> list[Point]:
    """The measured points of a table; none if the file is something else."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    if not rows or not rows[0] or rows[0][0] != "global_batch_size":
        return []
    widths = [int(name) for name in rows[0][1:]]
    return [point for row in rows[1:] if row for point in _points(row, widths)]


def _points(row: Sequence[str], widths: Sequence[int]) -> Iterable[Point]:
    for width, text in zip(widths, row[1:], strict=False):
        per_second = float(text) if text.strip() else 0.0
        if math.isfinite(per_second) and per_second > 0.0:
            yield int(row[0]), width, 1.0 / per_second
