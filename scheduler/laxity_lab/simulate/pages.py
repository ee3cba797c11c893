"""What a sweep leaves in a folder: figures, jobs, plots and one page that holds all of it.

runs.json, runs.csv   one row per run
jobs.csv              one row per job of the first run
*.png                 GPUs in use, completion times, promised against actual if any was promised
page.html             self-contained: the figures, and the plots inside it
"""

import csv
import html
import json
import math
from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity_lab.simulate.report import Figures, finite_figures
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.cases import Case
from laxity_lab.world.outcome import FIELDS, Run
from laxity_scheduler.model.job import HOUR_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write(folder: Path, cases: Sequence[tuple[Case, Setting]], reports: Sequence[Figures]) -> None:
    """Write all files; the first run of each policy is run again for its jobs and plots."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [finite_figures(report) for report in reports]
    (folder / "runs.json").write_text(json.dumps(rows, indent=1))
    _table(folder / "runs.csv", rows)
    first: dict[str, tuple[Case, Setting]] = {}
    for case, setting in cases:
        first.setdefault(setting.policy, (case, setting))
    runs = [simulate(case.load(), setting) for case, setting in first.values()]
    _table(folder / "jobs.csv", jobs_of(runs[0]))
    pictures = plots(runs)
    for name, picture in pictures.items():
        (folder / f"{name}.png").write_bytes(picture)
    (folder / "page.html").write_text(page(reports, pictures))


def jobs_of(run: Run) -> list[Figures]:
    """One row per job, with the fields of an Outcome."""
    return [
        {"id": row.id, **{name: getattr(row, name) for name in FIELDS}, "refused": row.refused}
        for row in run.outcomes
    ]


def _table(path: Path, rows: Sequence[Figures]) -> None:
    if not rows:
        return
    with path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def plots(runs: Sequence[Run]) -> dict[str, bytes]:
    """PNG pictures by name."""
    draw = {"gpus_in_use": _busy, "completion_times": _completion}
    if any(np.isfinite(run.column("promised_at")).any() for run in runs):
        draw["promised_actual"] = _plot_promises
    return {name: _picture(draw_axes, runs) for name, draw_axes in draw.items()}


def _picture(draw: Any, runs: Sequence[Run]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    draw(axes, runs)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    written = BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(written, format="png")
    return written.getvalue()


def _busy(axes: "Axes", runs: Sequence[Run]) -> None:
    for run in runs:
        if len(run.busy):
            instants, held = np.array(run.busy, dtype=np.float64).T
        else:
            instants, held = _from_jobs(run)
        axes.step(
            (instants - instants[0]) / HOUR_S, held, where="post", label=run.policy, linewidth=0.8
        )
        axes.axhline(run.gpus, color="grey", linewidth=0.6)
    axes.set(xlabel="hours", ylabel="GPUs in use")


def _from_jobs(run: Run) -> tuple[Any, Any]:
    """GPUs over time of jobs that were never stopped."""
    start, end, gpus = (run.column(name) for name in ("first_start_at", "finished_at", "gpus"))
    ran = np.isfinite(end)
    instants = np.concatenate([start[ran], end[ran]])
    change = np.concatenate([gpus[ran], -gpus[ran]])
    order = np.lexsort((change > 0, instants))  # at one instant who ends makes room for who starts
    return instants[order], np.cumsum(change[order])


def _completion(axes: "Axes", runs: Sequence[Run]) -> None:
    for run in runs:
        ended = run.column("finished_at")
        took = np.sort(ended[np.isfinite(ended)] - run.column("submitted_at")[np.isfinite(ended)])
        share = np.arange(1, len(took) + 1) / max(1, len(run))
        axes.step(np.maximum(took, 1.0) / HOUR_S, share, where="post", label=run.policy)
    axes.set(xlabel="hours from submission to end", ylabel="share of all jobs", xscale="log")


def _plot_promises(axes: "Axes", runs: Sequence[Run]) -> None:
    for run in runs:
        promised, ended = run.column("promised_at"), run.column("finished_at")
        both = np.isfinite(promised) & np.isfinite(ended)
        if both.any():
            since = run.column("submitted_at")[both]
            axes.plot(
                (promised[both] - since) / HOUR_S,
                (ended[both] - since) / HOUR_S,
                ".",
                markersize=2,
                label=run.policy,
            )
    axes.axline((0.0, 0.0), slope=1.0, color="grey", linewidth=0.6)
    axes.set(xlabel="promised P90 finish, hours", ylabel="actual finish, hours")


def page(reports: Sequence[Figures], pictures: dict[str, bytes]) -> str:
    """One self-contained HTML page: a column for each run, a row for each figure."""
    names = [name for name in reports[0] if any(report.get(name) is not None for report in reports)]
    body = "".join(
        f"<tr><th>{html.escape(name)}</th>"
        + "".join(f"<td>{_cell(report.get(name))}</td>" for report in reports)
        + "</tr>"
        for name in names
    )
    images = "".join(
        f"<h2>{html.escape(name.replace('_', ' '))}</h2>"
        f'<img alt="{html.escape(name)}" src="data:image/png;base64,{b64encode(picture).decode()}">'
        for name, picture in pictures.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>laxity simulate</title>'
        "<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{padding:.2em .6em;border-bottom:1px solid #ddd;text-align:right}"
        "th{text-align:left}div{overflow-x:auto}img{max-width:100%}</style>"
        f"<h1>Simulated runs</h1><div><table>{body}</table></div>{images}</html>"
    )


def _cell(value: object) -> str:
    if isinstance(value, float):
        shown = f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.4g}"
        return shown if math.isfinite(value) else ""
    return "" if value is None else html.escape(str(value))
