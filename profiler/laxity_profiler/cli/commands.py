"""Commands of this floor: predict says how long a model trains, profile finds it out by training."""

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from laxity.cli.job_options import Params

if TYPE_CHECKING:
    from rich.table import Table

    from laxity_profiler.estimate import Estimate, Workload
    from laxity_profiler.predictor.history_predictor import HistoryPredictor

Store = Annotated[
    str, typer.Option(envvar="LAXITY_STORE", help="URL of the store; default: the home's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines.")]


def register(app: typer.Typer) -> None:
    """Add this floor's commands."""
    from laxity_profiler.cli.profile_command import profile
    from laxity_profiler.cli.refit_command import refit

    app.command("predict")(predict)
    app.command("profile")(profile)
    app.command("refit")(refit)


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model's key, or what submit takes: job.yaml, train.py:function.",
        ),
    ],
    *,
    workers: Annotated[
        str, typer.Option(help="Widths: 3, 1,2,4 or 1..8; else as declared, or 1,2,4,8.")
    ] = "",
    epochs: Annotated[
        int | None, typer.Option(help="Epochs to train; else as declared, or 1.", min=1)
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples per epoch.", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Global batch size.", min=1)] = None,
    gpu_type: Annotated[
        str | None,
        typer.Option("--gpu", help="The product, as nodes are labelled: NVIDIA-L4; else any."),
    ] = None,
    estimate: Annotated[
        str | None, typer.Option(help="One epoch on one worker takes so long: 90s.")
    ] = None,
    param: Params = None,
    store: Store = "",
    as_json: AsJson = False,
) -> None:
    """Say how long a model will train, and how sure."""
    from laxity.cli.render.job_table import console
    from laxity_profiler.cli.format import format_duration
    from laxity_profiler.cli.predict_source import unknown_model_text, workload_and_widths

    options = {
        "epochs": epochs,
        "samples": samples,
        "batch_size": batch_size,
        "gpu_type": gpu_type,
    }
    workload, widths = workload_and_widths(
        model, options, workers=workers, estimate=estimate, params=param or ()
    )
    predictor = _load_predictor(store)
    rows = _predict_rows(predictor, workload, widths)
    if as_json:
        named = {"model": workload.model, "version": predictor.version}
        named["note"] = predictor.notes(workload)
        typer.echo(json.dumps({**named, "widths": rows}))
        return
    console().print(_rich_table(workload, rows))
    if note := predictor.notes(workload):
        typer.echo(note)
    finishing_s = max((row["finishing"]["p90_s"] for row in rows), default=0.0)
    if finishing_s >= 1.0:
        shown = format_duration(finishing_s)
        typer.echo(f"from the last epoch to the finish: {shown} (P90), part of the whole")
    known_models = [fit.model for fit in predictor.models]
    if workload.model not in known_models:
        typer.echo(unknown_model_text(workload.model, known_models))


def _load_predictor(store: str) -> "HistoryPredictor":
    """What the history of the store comes to."""
    from laxity_profiler.cli.open_store import open_store
    from laxity_profiler.history.history import History
    from laxity_profiler.learning.learner import Learner

    with open_store(store) as engine:
        return Learner(History(engine)).predictor()


def _predict_rows(
    predictor: "HistoryPredictor", workload: "Workload", widths: tuple[int, ...]
) -> list[dict[str, Any]]:
    from laxity_profiler.estimate import NO_PROGRESS, Ask

    whole = predictor.table([Ask(workload, NO_PROGRESS, width) for width in widths])
    epochs_seen = [predictor.epochs_seen_at(workload, width) for width in widths]
    return [
        {
            "workers": width,
            "epoch": _figures_of(predictor.epoch_time(workload, width)),
            "whole": _figures_of(whole[row]),
            "finishing": _figures_of(predictor.finishing_time(workload, width)),
            "source": _source_text(whole.sources[row], epochs_seen[row]),
            "n_points": int(whole.n_points[row]),
            "seen": epochs_seen[row],
        }
        for row, width in enumerate(widths)
    ]


def _source_text(source: str, epochs_seen: int) -> str:
    """What an answer rests on: the history of a model holds no epoch of a width never run."""
    return "extrapolated" if source == "history" and not epochs_seen else source


def _figures_of(estimate: "Estimate") -> dict[str, float | None]:
    """Seconds by quantile; null for what cannot be known."""
    figures = {
        "p10_s": estimate.p10_s,
        "p50_s": estimate.p50_s,
        "mean_s": estimate.mean_s,
        "p90_s": estimate.p90_s,
    }
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def _rich_table(workload: "Workload", rows: list[dict[str, Any]]) -> "Table":
    """One row per width; the bars compare the speeds."""
    from rich.table import Table

    from laxity_profiler.cli.format import draw_bar, format_duration

    several = workload.epochs > 1
    title = f"{workload.model}, {workload.epochs} epochs" if several else workload.model
    table = Table(title=title, title_justify="left")
    for column in ("workers", "epoch P50", "P90", *(("in all P50", "P90") if several else ())):
        table.add_column(column, justify="right")
    table.add_column("speed", no_wrap=True)
    table.add_column("from")
    table.add_column("seen", justify="right")
    fastest = min((row["epoch"]["p50_s"] or math.inf for row in rows), default=math.inf)
    for row in rows:
        parts = (row["epoch"], row["whole"]) if several else (row["epoch"],)
        durations = [format_duration(part[name]) for part in parts for name in ("p50_s", "p90_s")]
        speed = draw_bar(fastest / row["epoch"]["p50_s"]) if row["epoch"]["p50_s"] else ""
        table.add_row(str(row["workers"]), *durations, speed, row["source"], str(row["seen"]))
    return table
