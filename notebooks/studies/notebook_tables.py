"""What the notebooks show of a study: its kept rows, and comparisons with their intervals.

With LAXITY_STUDY=samples in the environment the study is made anew, in small, on the traces that
ship: seconds instead of hours, other figures, the same code.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from laxity_lab.simulate.report import interval
from studies.datasets import open_datasets
from studies.results import read_rows
from studies.study import STUDIES, run_study
from studies.study_rows import Cell, Row

STUDY: Final = "LAXITY_STUDY"  # "samples": notebooks make their study anew, on traces that ship
SEEDS_OF_SAMPLES: Final = 2


def rows(name: str, kept: Path) -> list[Row]:
    """The rows of a study. RuntimeError if there are none, or if a trial of the samples failed."""
    if os.environ.get(STUDY) == "samples":
        return _compute_samples(name)
    kept_rows = read_rows(kept, name)
    if not kept_rows:
        raise RuntimeError(f"no rows of {name} in {kept}: python -m studies {name} --out {kept}")
    return kept_rows


def _compute_samples(name: str) -> list[Row]:
    with TemporaryDirectory() as folder:
        problems = run_study(
            STUDIES[name], open_datasets(samples=True), range(SEEDS_OF_SAMPLES), Path(folder)
        )
        if problems:
            raise RuntimeError("; ".join(problems))
        return read_rows(Path(folder), name)


def having(found: Sequence[Row], **labels: Cell) -> list[Row]:
    """Rows with these labels."""
    return [row for row in found if all(row.get(name) == cell for name, cell in labels.items())]


def values(found: Sequence[Row], figure: str) -> dict[int, float]:
    """A figure by seed."""
    return {
        int(seed): float(value)
        for row in found
        if isinstance(seed := row.get("seed"), int)
        and isinstance(value := row.get(figure), int | float)
    }


def spread(given: Mapping[int, float], *, scale: float = 1.0) -> tuple[float, float]:
    """Mean over seeds, and the half width of its 95 % interval; nan without values."""
    if not given:
        return float("nan"), float("nan")
    mean, half = interval([value * scale for value in given.values()])
    return mean, half


def change(ours: Mapping[int, float], theirs: Mapping[int, float]) -> tuple[float, float]:
    """By how much per cent ours is greater, seed by seed: mean, and half width of its interval."""
    both = sorted(ours.keys() & theirs.keys())
    return spread({seed: ours[seed] / theirs[seed] - 1.0 for seed in both}, scale=100.0)


def gain(ours: Mapping[int, float], theirs: Mapping[int, float]) -> tuple[float, float]:
    """By how many points ours is greater, seed by seed: mean, and half width of its interval."""
    both = sorted(ours.keys() & theirs.keys())
    return spread({seed: ours[seed] - theirs[seed] for seed in both}, scale=100.0)


def with_interval(figure: tuple[float, float], digits: int = 1) -> str:
    """`-12.3 +- 4.5`; one value has no interval."""
    mean, half = figure
    if mean != mean:  # noqa: PLR0124 - nan
        return "-"
    return f"{mean:,.{digits}f} +- {half:,.{digits}f}" if half else f"{mean:,.{digits}f}"
