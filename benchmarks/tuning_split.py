"""Whether the choice of the fit's one free setting holds on tables that had no part in it.

Form, design and error constants of the step time were chosen with all published tables in sight,
so their errors on the same tables flatter. What can be checked is `pull`: chosen on some tables,
judged on others.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Final

from benchmarks.held_out import (
    GOOD,
    Judgement,
    TableResult,
    judge_table,
    read_tables,
)

PULLS: Final = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
ByPull = dict[float, tuple[TableResult, ...]]


def judge_by_pull(where: Path, *, gpus_per_node: int | None = None) -> ByPull:
    """Every table of a folder judged at each setting; tables in the same order."""
    tables = list(read_tables(where, gpus_per_node=gpus_per_node))
    by_pull: ByPull = {}
    for pull in PULLS:
        judged = [
            judge_table(points, name=name, gpus_per_node=node, pull=pull)
            for name, node, points in tables
        ]
        by_pull[pull] = tuple(result for result in judged if not isinstance(result, str))
    return by_pull


def judge_left_out(by_pull: ByPull, group: Callable[[str], str]) -> Judgement | None:
    """Each table at the setting that is best for all tables of other groups; None with one group."""
    names = [result.table for result in by_pull[PULLS[0]]]
    if len({group(name) for name in names}) < 2:
        return None
    rows = []
    for index, name in enumerate(names):
        others = [
            other for other, other_name in enumerate(names) if group(other_name) != group(name)
        ]
        rows.append(by_pull[_best_pull(by_pull, others)][index])
    return Judgement(tuple(rows))


def group_by_model(table: str) -> str:
    """Groups of one table: each model is left out by itself."""
    return table


def group_by_folder(table: str) -> str:
    """Groups by folder: all models of one kind of machine are left out together."""
    return table.rpartition("/")[0]


def _best_pull(by_pull: ByPull, chosen: list[int]) -> float:
    """Most models under 10 % on these tables; of equals, the least median error."""

    def loss(pull: float) -> tuple[float, float]:
        tables = [by_pull[pull][index] for index in chosen]
        errors = [error for table in tables for error in table.errors]
        return fmean(table.mape >= GOOD for table in tables), median(errors)

    return min(PULLS, key=loss)
