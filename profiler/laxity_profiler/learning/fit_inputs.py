"""Which parameters of a model's runs have an effect on the time of an epoch, and which have none.

Runs of one setting and width are compared by the logarithm of their mean epoch. While runs that
agree in the parameters chosen so far still differ, the parameter that explains three quarters of
the rest and leaves the most runs to compare is chosen too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from laxity_profiler.model.inputs import ALIKE, SIZES, InputFit, number_of
from laxity_profiler.model.model_fit import WorkloadSetting

if TYPE_CHECKING:
    from laxity_profiler.history.history import TrainingRun

RUNS: Final = 100  # the latest
MOST_VALUES: Final = 20  # of one parameter that are kept
SAME: Final = 0.2  # standard deviation of logarithms: runs that differ by less are alike
LEFT: Final = 0.25  # of the squares, after a parameter that explains them
FEW: Final = 4  # runs: with fewer, a parameter that no two of them share may explain, too


class _Row(NamedTuple):
    inputs: Mapping[str, str]
    log_s: float


def fit_inputs(runs: "Sequence[TrainingRun]") -> tuple[InputFit, ...]:
    """The parameters of the latest runs, by name."""
    latest = [run for run in runs if run.workload.inputs and run.epochs][-RUNS:]
    rows = _comparable_rows(latest)
    values: dict[str, list[str]] = {}
    for run in latest:
        for name, value in run.workload.inputs:
            values.setdefault(name, []).append(value)
    varied = [name for name, seen in values.items() if len(set(seen)) > 1]
    effective = _effective(rows, varied)
    return tuple(
        InputFit(
            name,
            tuple(dict.fromkeys(reversed(seen)))[:MOST_VALUES][::-1],
            len(seen),
            name in effective,
            *_followed_size(latest, name),
        )
        for name, seen in sorted(values.items())
    )


def run_lengths(runs: "Sequence[TrainingRun]") -> tuple[int, ...]:
    """The epochs that the latest runs declared, oldest first."""
    return tuple(run.workload.epochs for run in runs[-RUNS:] if run.epochs)


def _comparable_rows(runs: "Sequence[TrainingRun]") -> list[_Row]:
    """A row per run: how its mean epoch differs from that of the runs of its setting and width."""
    groups: dict[tuple[WorkloadSetting, int], list[_Row]] = {}
    for run in runs:
        width, product = run.epochs[-1].width, run.epochs[-1].gpu_type
        timed = [epoch for epoch in run.epochs if (epoch.width, epoch.gpu_type) == (width, product)]
        warm = [epoch.epoch_s for epoch in timed if not epoch.warmup]
        mean_s = fmean(warm or [epoch.epoch_s for epoch in timed])
        setting = WorkloadSetting.of(run.workload)
        key = (replace(setting, gpu_type=product or setting.gpu_type), width)
        groups.setdefault(key, []).append(_Row(dict(run.workload.inputs), math.log(mean_s)))
    return [
        row._replace(log_s=row.log_s - middle)
        for group in groups.values()
        for middle in (fmean(row.log_s for row in group),)
        for row in group
    ]


def _effective(rows: Sequence[_Row], varied: Sequence[str]) -> set[str]:
    chosen: set[str] = set()
    while True:
        squares, free = _rest(rows, chosen)
        if not free or squares <= free * SAME * SAME:
            return chosen
        rests = {name: _rest(rows, chosen | {name}) for name in varied if name not in chosen}
        fitting = {
            name: (free_left, -squares_left)
            for name, (squares_left, free_left) in rests.items()
            if squares_left <= LEFT * squares and (free_left or len(rows) < FEW)
        }
        if not fitting:
            return chosen
        best = max(fitting.values())
        chosen |= {name for name, rest in fitting.items() if rest[0] == best[0] == 0}
        chosen |= {min(name for name, rest in fitting.items() if rest == best)}


def _rest(rows: Sequence[_Row], names: set[str]) -> tuple[float, int]:
    """The squares within groups of equal values of these, and how many rows those have to spare."""
    groups: dict[tuple[str | None, ...], list[float]] = {}
    for row in rows:
        key = tuple(row.inputs.get(name) for name in sorted(names))
        groups.setdefault(key, []).append(row.log_s)
    squares = sum((value - fmean(group)) ** 2 for group in groups.values() for value in group)
    return squares, len(rows) - len(groups)


def _followed_size(runs: "Sequence[TrainingRun]", name: str) -> tuple[str, float]:
    """The size of the workload that this parameter is a fixed multiple of, and the multiple."""
    for size in SIZES:
        ratios = [
            None if number is None or not known else number / known
            for run in runs
            if name in (given := dict(run.workload.inputs))
            for number, known in ((number_of(given[name]), getattr(run.workload, size)),)
        ]
        whole = [ratio for ratio in ratios if ratio]
        if len(whole) == len(ratios) and max(whole) <= min(whole) * (1.0 + ALIKE):
            return size, whole[-1]
    return "", 0.0
