"""The three pictures of this floor: calibration, predicted against actual, a curve over workers.

The only importer of matplotlib here, and without pyplot: figures are values, nothing is global.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from laxity_profiler.learning.backtest import CalibrationPoint, PredictionOutcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Final = ("#1b6ca8", "#c8553d", "#588157", "#8d6a9f", "#b08900", "#4a4a4a")
MARKERS: Final = "osD^vP"
MOST_POINTS: Final = 5_000
MOST_NAMED: Final = 6
Rows = Sequence[tuple[int, float, float, float]]  # workers, P10, P50, P90 in seconds


def calibration_chart(curves: Mapping[str, Sequence[CalibrationPoint]]) -> "Figure":
    """Measured against nominal coverage, with 95 % intervals; the diagonal is what is wanted."""
    figure, axes = _new_figure()
    axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--", label="calibrated")
    for series, (name, points) in enumerate(sorted(curves.items())):
        if not points:
            continue
        levels = [point.level for point in points]
        shares = [point.share for point in points]
        around = [point.interval for point in points]
        below = [max(0.0, share - low) for share, (low, _) in zip(shares, around, strict=True)]
        above = [max(0.0, high - share) for share, (_, high) in zip(shares, around, strict=True)]
        axes.errorbar(
            levels,
            shares,
            yerr=[below, above],
            color=COLOURS[series % len(COLOURS)],
            marker=MARKERS[series % len(MARKERS)],
            markersize=5,
            linewidth=1.2,
            capsize=3,
            label=f"{name} (n = {points[0].n})",
        )
    axes.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
    axes.set_xlabel("predicted quantile")
    axes.set_ylabel("share of actual times at or below it")
    axes.set_title("Calibration, with 95 % intervals")
    axes.legend(loc="upper left", frameon=False, fontsize=8)
    return figure


def scatter_chart(outcomes: Sequence[PredictionOutcome]) -> "Figure":
    """Predicted (P50) against actual seconds, both logarithmic, by model."""
    figure, axes = _new_figure()
    recent = [row for row in outcomes if row.predicted_s > 0.0 and row.actual_s > 0.0][
        -MOST_POINTS:
    ]
    by_model: dict[str, list[PredictionOutcome]] = {}
    for row in recent:
        by_model.setdefault(row.model, []).append(row)
    ordered = sorted(by_model.items(), key=lambda item: (-len(item[1]), item[0]))
    for series, (model, rows) in enumerate(ordered):
        axes.scatter(
            [row.actual_s for row in rows],
            [row.predicted_s for row in rows],
            s=14,
            alpha=0.6,
            color=COLOURS[series % len(COLOURS)],
            marker=MARKERS[series % len(MARKERS)],
            label=model[:40] if series < MOST_NAMED else None,
        )
    if recent:
        _draw_diagonal(axes, recent)
        axes.legend(loc="upper left", frameon=False, fontsize=8)
    axes.set_xlabel("actual seconds")
    axes.set_ylabel("predicted seconds (P50)")
    axes.set_title(f"Predicted against actual, n = {len(recent)}; dashed: 10 % off")
    return figure


def curve_chart(
    title: str, curves: Mapping[str, Rows], measured: Sequence[tuple[int, float]] = ()
) -> "Figure":
    """Epoch time over workers: P50 with the band from P10 to P90, and what was measured."""
    figure, axes = _new_figure()
    for series, (name, rows) in enumerate(curves.items()):
        widths = [row[0] for row in rows]
        colour = COLOURS[series % len(COLOURS)]
        axes.plot(widths, [row[2] for row in rows], color=colour, marker=".", label=name)
        axes.fill_between(
            widths, [row[1] for row in rows], [row[3] for row in rows], color=colour, alpha=0.15
        )
    if measured:
        at_widths, seconds = zip(*measured, strict=True)
        axes.scatter(at_widths, seconds, color="black", s=24, zorder=3, label="measured")
    axes.set_xscale("log", base=2)
    ticks = sorted({row[0] for rows in curves.values() for row in rows})
    axes.set_xticks(ticks, labels=[str(width) for width in ticks])
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("workers")
    axes.set_ylabel("seconds per epoch (P50; band: P10 to P90)")
    axes.set_title(title)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _new_figure() -> "tuple[Figure, Axes]":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 5.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(visible=True, color="#e5e5e5", linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _draw_diagonal(axes: "Axes", rows: Sequence[PredictionOutcome]) -> None:
    seconds = [value for row in rows for value in (row.predicted_s, row.actual_s)]
    low, high = (
        10 ** (math.log10(edge) + step)
        for edge, step in ((min(seconds), -0.1), (max(seconds), 0.1))
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.plot([low, high], [low, high], color="#999999", linewidth=1)
    for share in (0.9, 1.1):
        axes.plot(
            [low, high], [share * low, share * high], color="#bbbbbb", linewidth=0.8, linestyle="--"
        )
