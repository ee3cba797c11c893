"""Measured throughput by model, batch size and GPU count: the ground truth of elastic jobs.

A folder holds one file per model, `MODEL.csv`: `global_batch_size`, then a column per GPU count,
cells in iterations/s. A blank, a zero or `nan` means "not measured". Curves are not monotone, so a
job's widths end where its throughput peaks.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class TableError(ValueError):
    """A folder of throughput tables cannot be used."""


@dataclass(frozen=True, slots=True)
class Table:
    """Iterations/s at each measured GPU count, in order of GPU count."""

    gpus: tuple[int, ...]
    iterations_per_s: tuple[float, ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """GPU counts worth offering: up to the peak, and none slower than a smaller one."""
        best, kept = 0.0, []
        for gpus, speed in zip(self.gpus, self.iterations_per_s, strict=True):
            if speed > best:
                best = speed
                kept.append(gpus)
        return tuple(kept)

    def speed(self, gpus: int) -> float:
        """Iterations/s on a measured GPU count; KeyError otherwise."""
        try:
            return self.iterations_per_s[self.gpus.index(gpus)]
        except ValueError:
            raise KeyError(gpus) from None


Tables = Mapping[tuple[str, int], Table]  # by (model, global batch size)


def load_tables(folder: Path) -> dict[tuple[str, int], Table]:
    """All `MODEL.csv` of a folder. TableError names file, line and cell that are wrong."""
    files = sorted(folder.glob("*.csv"))
    if not files:
        message = f"no throughput tables (MODEL.csv) in {folder}"
        raise TableError(message)
    tables: dict[tuple[str, int], Table] = {}
    for path in files:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = [row for row in csv.reader(lines) if row]
        counts = _counts(path, rows)
        for number, row in enumerate(rows[1:], start=2):
            tables[path.stem, _batch(path, number, row)] = _table(path, number, counts, row)
    return tables


def _counts(path: Path, rows: list[list[str]]) -> tuple[int, ...]:
    if not rows or rows[0][0].strip() != "global_batch_size":
        message = f"{path.name}: the first column must be global_batch_size"
        raise TableError(message)
    try:
        return tuple(int(cell) for cell in rows[0][1:])
    except ValueError as error:
        message = f"{path.name}: a column heading is no GPU count: {error}"
        raise TableError(message) from error


def _batch(path: Path, number: int, row: list[str]) -> int:
    try:
        return int(float(row[0]))
    except ValueError as error:
        message = f"{path.name}, line {number}: batch size {row[0]!r} is no number"
        raise TableError(message) from error


def _table(path: Path, number: int, counts: tuple[int, ...], row: list[str]) -> Table:
    measured: dict[int, float] = {}
    for gpus, cell in zip(counts, row[1:], strict=False):
        try:
            speed = float(cell) if cell.strip() else 0.0
        except ValueError as error:
            message = f"{path.name}, line {number}: {cell!r} for {gpus} GPUs is no number"
            raise TableError(message) from error
        if math.isfinite(speed) and speed > 0:
            measured[gpus] = speed
    if not measured:
        message = f"{path.name}, line {number}: nothing measured"
        raise TableError(message)
    ordered = sorted(measured)
    return Table(tuple(ordered), tuple(measured[gpus] for gpus in ordered))
