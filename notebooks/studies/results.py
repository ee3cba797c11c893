"""A folder's rows of a study: read, added to one by one, and written in a stable order.

NAME.csv    one row per trial, sorted by its labels
NAME.json   means over seeds, each with the half width of its 95 % interval
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from laxity.durable_files import replace_file
from laxity_lab.simulate.report import Figures, groups, summary
from studies.study_rows import LABELS, Cell, Row, cell_text, row_key

WORDS = ("part", "trace", "policy", "variant", "admission", "packing", "cost_model")


def read_rows(folder: Path, name: str) -> list[Row]:
    """The rows that are there; none if there is no such file."""
    path = folder / f"{name}.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as lines:
        return [
            {column: _parse_cell(column, value) for column, value in row.items()}
            for row in csv.DictReader(lines)
        ]


def write_rows(folder: Path, name: str, rows: Iterable[Row]) -> None:
    """Both files. The same rows give the same bytes, in whatever order they came."""
    folder.mkdir(parents=True, exist_ok=True)
    sorted_rows = sorted({row_key(row): row for row in rows}.values(), key=_label_order)
    columns = list(dict.fromkeys(column for row in sorted_rows for column in row))
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell_text(row.get(column)) for column in columns] for row in sorted_rows)
    replace_file(folder / f"{name}.csv", lines.getvalue())
    means = ",\n".join(
        json.dumps(group, separators=(",", ":")) for group in mean_rows(read_rows(folder, name))
    )
    replace_file(folder / f"{name}.json", f"[\n{means}\n]\n")


def mean_rows(rows: Sequence[Row]) -> list[Figures]:
    """One entry per group of rows that differ in their seed alone."""
    names = [label for label in LABELS if label != "seed"]
    return [
        {name: value for name, value in labels.items() if value is not None}
        | _round_figures(summary(members, [name for name in members[0] if name not in LABELS]))
        for labels, members in groups(rows, names)
    ]


def _round_figures(figures: Figures) -> Figures:
    """Six digits; one run has no interval."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in figures.items()
        if figures["runs"] != 1 or not name.endswith("_ci95")
    }


def _parse_cell(column: str, value: str) -> Cell:
    if not value:
        return None
    if column in WORDS:
        return value
    number = float(value)
    return int(number) if value.lstrip("-").isdigit() else number


def _label_order(row: Row) -> tuple[tuple[float, str], ...]:
    """Numbers by size, then words by letters."""
    return tuple(
        (-1.0, "") if cell is None else (0.0, cell) if isinstance(cell, str) else (float(cell), "")
        for cell in (row.get(label) for label in LABELS)
    )
