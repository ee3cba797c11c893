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
class ThroughputTable:
    """Iterations/s at each measured GPU count, in order of GPU count.

    `trainings`: how many iterations each training that was seen takes in all, if any was.
    """

    gpus: tuple[int, ...]
    iterations_per_s: tuple[float, ...]
    trainings: tuple[float, ...] = ()

    @property
    def levels(self) -> tuple[int, ...]:
        """GPU counts worth offering: up to the peak, and none slower than a smaller one."""
        best, levels = 0.0, []
        for gpus, speed in zip(self.gpus, self.iterations_per_s, strict=True):
            if speed > best:
                best = speed
                levels.append(gpus)
        return tuple(levels)

    def speed(self, gpus: int) -> float:
        """Iterations/s on a measured GPU count; KeyError otherwise."""
        try:
            return self.iterations_per_s[self.gpus.index(gpus)]
        except ValueError:
            raise KeyError(gpus) from None


Tables = Mapping[tuple[str, int], ThroughputTable]  # by (model, global batch size)


def load_tables(folder: Path) -> dict[tuple[str, int], ThroughputTable]:
    """All `MODEL.csv` of a folder. TableError names file, line and cell that are wrong."""
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise TableError(f"no throughput tables (MODEL.csv) in {folder}")
    tables: dict[tuple[str, int], ThroughputTable] = {}
    for path in files:
        rows = _rows(path)
        counts = _counts(path, rows[0][1] if rows else [""])
        for number, row in rows[1:]:
            try:
                batch, table = _batch(row), _table(counts, row)
            except ValueError as error:
                raise TableError(f"{path.name}, line {number}: {error}") from error
            if (path.stem, batch) in tables:
                raise TableError(
                    f"{path.name}, line {number}: batch size {batch} stands there twice"
                )
            if table.gpus:
                tables[path.stem, batch] = table
    return tables


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Each row with its line number; blank ones are left out."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        reader = csv.reader(lines)
        try:
            return [(reader.line_num, row) for row in reader if "".join(row).strip()]
        except csv.Error as error:
            raise TableError(f"{path.name}, line {reader.line_num}: {error}") from error


def _counts(path: Path, heads: list[str]) -> tuple[int, ...]:
    if heads[0].strip() != "global_batch_size":
        raise TableError(f"{path.name}: the first column is {heads[0]!r}, not global_batch_size")
    counts = [_whole(head) for head in heads[1:]]
    while counts and counts[-1] is None and not heads[len(counts)].strip():
        counts.pop()  # a comma at the line's end
    bad = [head for head, count in zip(heads[1:], counts, strict=False) if count is None]
    if bad or len(set(counts)) < len(counts):
        wrong = f"{bad[0]!r} is no GPU count" if bad else "a GPU count stands there twice"
        raise TableError(f"{path.name}, heading: {wrong}")
    return tuple(count for count in counts if count is not None)


def _batch(row: list[str]) -> int:
    batch = _whole(row[0])
    if batch is None:
        raise ValueError(f"batch size {row[0]!r} is no whole number")
    return batch


def _whole(text: str) -> int | None:
    """A positive whole number, if it is one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if 0 < value < math.inf and value == int(value) else None


def _table(counts: tuple[int, ...], row: list[str]) -> ThroughputTable:
    measured: dict[int, float] = {}
    for gpus, cell in zip(counts, row[1:], strict=False):
        try:
            speed = float(cell) if cell.strip() else 0.0
        except ValueError as error:
            raise ValueError(f"{cell!r} for {gpus} GPUs is no number") from error
        if speed < 0 or speed == math.inf:
            raise ValueError(f"{cell!r} for {gpus} GPUs is no speed")
        if speed > 0:
            measured[gpus] = speed
    ordered = sorted(measured)
    return ThroughputTable(tuple(ordered), tuple(measured[gpus] for gpus in ordered))
