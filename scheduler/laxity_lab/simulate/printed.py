"""The reports of runs as people and programs read them: a table of means, or JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer

from laxity.human_time import count_noun
from laxity_lab.simulate.report import Figures, finite_figures, groups, summary

# What the table shows: a figure of the reports, in words.
SHOWN: Final[Mapping[str, str]] = {
    "deadline_met_ratio": "deadlines met",
    "avg_jct_s": "mean time to completion",
    "avg_wait_s": "mean wait",
    "makespan_s": "makespan",
    "gpu_utilisation": "GPU utilisation",
    "preemptions": "preemptions",
    "promises": "promises",
    "promises_broken": "promises broken",
    "finish_mape": "finishes told, mean error",
    "finish_p90_coverage": "finishes told, P90 kept",
    "promised_finish_p90_coverage": "of promised jobs, P90 kept",
    "usage_all_gpus": "usage of all GPUs",
    "lent_gpus_mean": "GPUs lent, mean",
    "preempted_per_reclaimed_server": "jobs stopped per node that went back",
    "inference_short_max_s": "inference short of GPUs, longest",
}
APART: Final = (
    "policy",
    "nodes",
    "error",
    "admission",
)  # runs of one column differ in their seed alone, and in the batch that it draws
SHARES: Final = frozenset(
    {
        "deadline_met_ratio",
        "gpu_utilisation",
        "usage_all_gpus",
        "finish_mape",
        "finish_p90_coverage",
        "promised_finish_p90_coverage",
    }
)


def print_reports(reports: list[Figures], *, as_json: bool) -> None:
    """On standard output: one object of one run, else all runs and their means."""
    if as_json and len(reports) == 1:
        typer.echo(json.dumps(finite_figures(reports[0])))
        return
    means = [_mean_of(key, members) for key, members in groups(reports, APART)]
    if as_json:
        lists = {"runs": reports, "summary": means}
        typer.echo(json.dumps({key: [*map(finite_figures, rows)] for key, rows in lists.items()}))
        return
    from rich.table import Table

    from laxity.cli.render.job_table import console

    table = Table(box=None, pad_edge=False)
    table.add_column()
    for group in means:
        on = f"{count_noun(group['nodes'], 'node')}, {count_noun(group['runs'], 'run')}"
        table.add_column(f"{group['policy']}\n{on}", justify="right")
    for name, label in SHOWN.items():
        if any(name in group for group in means):
            table.add_row(label, *(_cell(group, name) for group in means))
    console().print(table)


def _mean_of(key: Figures, members: Sequence[Mapping[str, Any]]) -> Figures:
    """Means over seeds, with the trace where all runs had the same one."""
    traces = {member["trace"] for member in members}
    same = {"trace": traces.pop()} if len(traces) == 1 else {}
    return {**key, **same, **summary(members, tuple(SHOWN))}


def _cell(group: Figures, name: str) -> str:
    """A figure as people read it, with the half width of its interval."""
    if name not in group:
        return "-"
    value, half = group[name], group.get(f"{name}_ci95") or 0.0
    return f"{_figure(name, value)} ± {_figure(name, half)}" if half else _figure(name, value)


def _figure(name: str, value: float) -> str:
    """Shares in per cent, seconds as 12h14m, counts as whole numbers (of means one decimal)."""
    from laxity.human_time import format_seconds

    if value != value:  # noqa: PLR0124 - NaN
        return "-"
    if name in SHARES:
        return f"{100 * value:.1f} %"
    if name.endswith("_s"):
        return format_seconds(value)
    return f"{value:,.0f}" if value == round(value) or value >= 1_000 else f"{value:,.1f}"
