"""How well four profiled runs predict all the others, on measured tables of throughput.

The four points are chosen from batch sizes and widths only; all other points of the table are held
out, those beyond a node too. Coverage is the share of held-out points that took no longer than
their P90. `beyond_a_node` asks for more than a profile promises: four points inside one node, all
wider ones predicted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Final

from benchmarks.held_out_tables import (
    MeasuredPoints,
    ThroughputTableError,
    is_table,
    read_table,
)
from laxity.human_time import count_noun
from laxity_profiler.model.scaling import GPUS_PER_NODE, PULL, StepTime, four_points

NODE_GPUS: Final = {"T4": 4, "A100": 8}
GOOD: Final = 0.10  # mean absolute relative error of a model that counts as predicted
Point = tuple[int, int]  # global batch size, GPUs


@dataclass(frozen=True, slots=True)
class HeldOut:
    """One point that was not profiled: seconds per iteration as measured and as predicted."""

    batch: int
    gpus: int
    measured_s: float
    predicted_s: float
    p90_s: float
    error_terms: tuple[float, ...] = ()  # of `StepTime.error_terms`

    @property
    def error(self) -> float:
        """Relative; positive if it was predicted too slow."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def is_covered(self) -> bool:
        return self.measured_s <= self.p90_s


@dataclass(frozen=True)
class TableResult:
    """One table. `form_mape`: the same form fitted on all points, so what no choice of four mends."""

    table: str
    gpus_per_node: int
    profiled: tuple[Point, ...]
    held: tuple[HeldOut, ...]
    form_mape: float

    @cached_property
    def errors(self) -> tuple[float, ...]:
        return tuple(abs(point.error) for point in self.held)

    @property
    def mape(self) -> float:
        return fmean(self.errors)

    @property
    def median_ape(self) -> float:
        return median(self.errors)

    @property
    def covered(self) -> int:
        return sum(point.is_covered for point in self.held)

    @property
    def worst(self) -> HeldOut:
        return max(self.held, key=lambda point: abs(point.error))


@dataclass(frozen=True, slots=True)
class Judgement:
    """All tables of a folder; `skipped` names those that say nothing, each with the reason."""

    tables: tuple[TableResult, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def points(self) -> int:
        return sum(len(table.held) for table in self.tables)

    @property
    def median_ape(self) -> float:
        return median(error for table in self.tables for error in table.errors)

    @property
    def models_under_10pct(self) -> float:
        return fmean(table.mape < GOOD for table in self.tables)

    @property
    def p90_coverage(self) -> float:
        return sum(table.covered for table in self.tables) / self.points

    @property
    def worst(self) -> TableResult:
        return max(self.tables, key=lambda table: table.mape)


def judge_tables(where: Path, *, gpus_per_node: int | None = None) -> Judgement:
    """Every table under a folder (or the one that is named), by name.

    ThroughputTableError if one cannot be read, or none can be judged.
    """
    results: list[TableResult] = []
    skipped: list[tuple[str, str]] = []
    for path in tables_in(where):
        name = table_name(path)
        if not is_table(path) and path != where:
            skipped.append((name, "its first line is not that of a table"))
            continue
        node = gpus_per_node or node_gpus(path.parent.name)
        result = judge_table(read_table(path), name=name, gpus_per_node=node)
        if isinstance(result, str):
            skipped.append((name, result))
        else:
            results.append(result)
    if not results:
        reasons = "".join(f"; {name}: {reason}" for name, reason in skipped)
        raise ThroughputTableError(f"{where} holds no table that can be judged{reasons}")
    return Judgement(tuple(results), tuple(skipped))


def tables_in(where: Path) -> list[Path]:
    if not where.exists():
        raise ThroughputTableError(f"there is no {where}")
    return sorted(where.rglob("*.csv")) if where.is_dir() else [where]


def table_name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def read_tables(
    where: Path, *, gpus_per_node: int | None
) -> Iterator[tuple[str, int, MeasuredPoints]]:
    """Name, GPUs per node and points of each table; other files are passed over."""
    for path in filter(is_table, tables_in(where)):
        yield table_name(path), gpus_per_node or node_gpus(path.parent.name), read_table(path)


def node_gpus(folder: str) -> int:
    """GPUs per node of the machines that a folder's name tells of."""
    matches = (gpus for gpu, gpus in NODE_GPUS.items() if gpu in folder.upper())
    return next(matches, GPUS_PER_NODE)


def judge_table(
    measured: MeasuredPoints, *, name: str, gpus_per_node: int = GPUS_PER_NODE, pull: float = PULL
) -> TableResult | str:
    """One table, or in words why it says nothing."""
    if not measured:
        return "nothing in it was measured"
    profiled = four_points(*zip(*measured, strict=True), gpus_per_node=gpus_per_node, has=measured)
    held = [point for point in measured if point not in profiled]
    if not held or len(profiled) < 2:
        return f"{count_noun(len(measured), 'measured point')}: none is left to be held out"
    fitted = StepTime(gpus_per_node=gpus_per_node, pull=pull)
    whole = StepTime(gpus_per_node=gpus_per_node, pull=pull, bend=False)
    whole.fit(list(measured), list(measured.values()))
    form = zip(whole.predict(list(measured)), measured.values(), strict=True)
    return TableResult(
        name,
        gpus_per_node,
        profiled,
        predict_held_out(fitted, measured, profiled, held),
        fmean(abs(float(p) / a - 1.0) for p, a in form),
    )


def beyond_a_node(where: Path, *, gpus_per_node: int | None = None) -> tuple[TableResult, ...]:
    """Tables that go on beyond a node, predicted from four points inside one."""
    results = []
    for name, node, measured in read_tables(where, gpus_per_node=gpus_per_node):
        inside = {point: seconds for point, seconds in measured.items() if point[1] <= node}
        beyond = [point for point in measured if point not in inside]
        if len(inside) < 2 or not beyond:
            continue
        profiled = four_points(*zip(*inside, strict=True), gpus_per_node=node, has=inside)
        held = predict_held_out(StepTime(gpus_per_node=node), measured, profiled, beyond)
        results.append(TableResult(name, node, profiled, held, 0.0))
    return tuple(results)


def predict_held_out(
    model: StepTime, measured: MeasuredPoints, profiled: Sequence[Point], held: Iterable[Point]
) -> tuple[HeldOut, ...]:
    """Fit on the profiled points, predict the others."""
    held = list(held)
    model.fit(profiled, [measured[point] for point in profiled])
    predicted = model.predict(held), model.predict_p90(held), model.error_terms(held).tolist()
    return tuple(
        HeldOut(*point, measured[point], float(middle), float(upper), tuple(terms))
        for point, middle, upper, terms in zip(held, *predicted, strict=True)
    )
