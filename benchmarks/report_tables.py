"""What a judgement of measured tables comes to: named figures, and the whole table per model."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from benchmarks.held_out import Judgement, TableResult

COLUMNS: Final = ("model", "profiled (batch x GPUs)", "n", "mean", "median", "worst", "P90", "form")
ONLY_WIDE: Final = ("profiled (batch x GPUs)", "form")


def error_figures(
    judged: Judgement,
    beyond: Sequence[TableResult] = (),
    splits: Mapping[str, Judgement | None] | None = None,
    coverage_by_split: Mapping[str, float | None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Each as value and unit; shares are fractions of 1. `splits`: judged by a choice elsewhere."""
    worst = judged.worst
    figures_by_name = {
        "median_ape": _figure_json(judged.median_ape, "share"),
        "models_under_10pct": _figure_json(judged.models_under_10pct, "share of models"),
        "p90_coverage": _figure_json(judged.p90_coverage, "share of held-out points"),
        "worst_model": _figure_json(worst.table, "model"),
        "worst_model_mape": _figure_json(worst.mape, "share"),
        "models": _figure_json(len(judged.tables), "models"),
        "held_out": _figure_json(judged.points, "points"),
        "passed_over": _figure_json(len(judged.skipped), "files"),
    }
    points = [point for table in beyond for point in table.held]
    if points:
        covered = fmean(point.is_covered for point in points)
        figures_by_name["beyond_node_p90_coverage"] = _figure_json(
            covered, "share of points beyond a node"
        )
    for name, split in (splits or {}).items():
        if split is not None:
            figures_by_name[f"{name}_median_ape"] = _figure_json(split.median_ape, "share")
            figures_by_name[f"{name}_under_10pct"] = _figure_json(
                split.models_under_10pct, "share of models"
            )
    for name, coverage in (coverage_by_split or {}).items():
        if coverage is not None:
            figures_by_name[f"{name}_p90_coverage"] = _figure_json(
                coverage, "share of held-out points"
            )
    return figures_by_name


def table_cells(result: TableResult) -> tuple[str, ...]:
    """A row: mean, median and worst relative error; `form` is the error if fitted on all points."""
    worst = result.worst
    return (
        result.table,
        " ".join(f"{batch}x{gpus}" for batch, gpus in result.profiled),
        str(len(result.held)),
        _format_percent(result.mape),
        _format_percent(result.median_ape),
        f"{100 * worst.error:+.0f} % at {worst.batch}x{worst.gpus}",
        f"{result.covered}/{len(result.held)}",
        _format_percent(result.form_mape),
    )


def points_csv(judged: Judgement) -> str:
    """Every held-out point as CSV, times in seconds per iteration."""
    lines = ["table,gpus_per_node,batch,gpus,measured_s,predicted_s,p90_s"]
    lines += [
        f"{table.table},{table.gpus_per_node},{point.batch},{point.gpus},"
        f"{point.measured_s:.6g},{point.predicted_s:.6g},{point.p90_s:.6g}"
        for table in judged.tables
        for point in table.held
    ]
    return "\n".join(lines) + "\n"


def render_document(judged: Judgement, figures_by_name: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole table per model and the figures, as documents show them (Markdown)."""
    named = []
    for name, figure in figures_by_name.items():
        value = figure["value"]
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        named.append((name, shown, figure["unit"]))
    tables = (
        (COLUMNS, [table_cells(table) for table in judged.tables]),
        (("figure", "", ""), named),
    )
    return "\n\n".join(_markdown_table(columns, lines) for columns, lines in tables)


def _markdown_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    every = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in every)


def _figure_json(value: float | str, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


def _format_percent(share: float) -> str:
    return f"{100 * share:.1f} %"
