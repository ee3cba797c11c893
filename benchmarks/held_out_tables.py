"""Measured tables of throughput, as files: iterations per second over batch size and GPUs.

A table is MODEL.csv: `global_batch_size`, then a column per GPU count. Zero, blank and nan mean
"not measured". Anything else that is no positive number is an error that names file, line and
column: a benchmark on a table that was half read would say nothing.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FIRST_COLUMN: Final = "global_batch_size"
MOST: Final = 2**31  # of a batch size or of GPUs
MeasuredPoints = dict[tuple[int, int], float]  # (global batch size, GPUs): seconds per iteration


class ThroughputTableError(ValueError):
    """A table cannot be read; the message names file, line and column."""


def is_table(path: Path) -> bool:
    """Whether the first line begins as that of a table does."""
    rows = _read_rows(path)
    return bool(rows) and bool(rows[0]) and rows[0][0].strip() == FIRST_COLUMN


def read_table(path: Path) -> MeasuredPoints:
    """Seconds per iteration at each measured point, in the order of the file."""
    rows = _read_rows(path)
    if not rows or not rows[0] or rows[0][0].strip() != FIRST_COLUMN:
        first_cell = rows[0][0] if rows and rows[0] else ""
        raise ThroughputTableError(
            f"{path}, line 1, column 1: {FIRST_COLUMN} is wanted, not {first_cell[:40]!r}"
        )
    widths = _parse_widths(path, rows[0])
    points: MeasuredPoints = {}
    lines: dict[int, int] = {}
    for line, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(widths) + 1:
            cells = f"{len(row)} cells, and the first line has {len(widths) + 1}"
            raise ThroughputTableError(f"{path}, line {line}, column {len(widths) + 2}: {cells}")
        batch = _whole_number(row[0], f"{path}, line {line}, column 1 ({FIRST_COLUMN})")
        if batch in lines:
            problem = f"batch size {batch} is there already, on line {lines[batch]}"
            raise ThroughputTableError(f"{path}, line {line}, column 1 ({FIRST_COLUMN}): {problem}")
        lines[batch] = line
        for column, (width, text) in enumerate(zip(widths, row[1:], strict=False), 2):
            speed = _parse_speed(text, f"{path}, line {line}, column {column} ({width} GPUs)")
            if speed > 0.0:
                points[batch, width] = 1.0 / speed
    return points


def _read_rows(path: Path) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(csv.reader(file))
    except UnicodeDecodeError as error:
        raise ThroughputTableError(f"{path}, byte {error.start}: this is no UTF-8 text") from error
    except csv.Error as error:
        raise ThroughputTableError(f"{path}: {error}") from error
    except OSError as error:
        raise ThroughputTableError(f"{path} cannot be read: {error.strerror or error}") from error


def _parse_widths(path: Path, header: Sequence[str]) -> list[int]:
    widths: list[int] = []
    for column, text in enumerate(header[1:], 2):
        where = f"{path}, line 1, column {column}"
        width = _whole_number(text, where)
        if width in widths:
            raise ThroughputTableError(f"{where}: {width} GPUs have a column already")
        widths.append(width)
    if not widths:
        raise ThroughputTableError(
            f"{path}, line 1, column 2: there is no column for any number of GPUs"
        )
    return widths


def _whole_number(text: str, where: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value < MOST:
        raise ThroughputTableError(f"{where}: {text.strip()[:40]!r} is no whole number from 1 up")
    return value


def _parse_speed(text: str, where: str) -> float:
    """Iterations per second; 0.0 if it was not measured."""
    if not text.strip():
        return 0.0
    try:
        value = float(text)
    except ValueError:
        raise ThroughputTableError(f"{where}: {text.strip()[:40]!r} is no number") from None
    if math.isnan(value) or value == 0.0:
        return 0.0
    if value < 0.0 or math.isinf(value) or math.isinf(1.0 / value):
        raise ThroughputTableError(
            f"{where}: {text.strip()[:40]!r} iterations per second cannot be"
        )
    return value
