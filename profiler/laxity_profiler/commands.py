"""Commands of this floor: predict says how long a model trains, profile finds it out by training."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from laxity_profiler.estimate import Estimate, Workload
    from laxity_profiler.predictor import HistoryPredictor

DEFAULT_WORKERS: Final = "1,2,4,8"
BAR: Final = "\u2588"
BARS: Final = 12
Workers = Annotated[str, typer.Option(help="Widths: 3, 1,2,4 or 1..8.")]
Model = Annotated[str | None, typer.Option(help="Key of the model's history.")]
Store = Annotated[str, typer.Option(help="URL of the store; default: the home's.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for machines.")]


def register(app: typer.Typer) -> None:
    """Add this floor's commands."""
    app.command("predict")(predict)
    app.command("profile")(profile)


def predict(
    model: Annotated[str, typer.Argument(help="Key of the model's history.")],
    *,
    workers: Workers = DEFAULT_WORKERS,
    epochs: Annotated[int, typer.Option(help="Epochs to train.", min=1)] = 1,
    samples: Annotated[int | None, typer.Option(help="Samples per epoch.", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Global batch size.", min=1)] = None,
    estimate: Annotated[
        str | None, typer.Option(help="One epoch on one worker takes so long: 90s.")
    ] = None,
    store: Store = "",
    as_json: AsJson = False,
) -> None:
    """Say how long a model will train, and how sure."""
    from laxity.durations import parse_duration
    from laxity.exits import USAGE, CommandError
    from laxity.widths import parse_widths
    from laxity_profiler.estimate import Workload

    try:
        widths = parse_widths(workers)
        user_s = parse_duration(estimate).total_seconds() if estimate else None
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from error
    workload = Workload(model, epochs, samples, batch_size, user_epoch_s=user_s)
    predictor = _predictor(store)
    rows = _rows(predictor, workload, widths or (1,))
    if as_json:
        typer.echo(json.dumps({"model": model, "version": predictor.version, "widths": rows}))
    else:
        _print(_table(workload, rows))


def profile(
    source: Annotated[
        str, typer.Argument(metavar="FILE|ENTRY", help="YAML of a Job, or module:function.")
    ],
    *,
    workers: Workers = "1,2",
    epochs: Annotated[int, typer.Option(help="Epochs at each width.", min=2)] = 3,
    model: Model = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="KEY=VALUE for the function.")
    ] = None,
    store: Store = "",
    as_json: AsJson = False,
) -> None:
    """Train a few epochs at each width, one after the other, and say what that tells."""
    from laxity.client import Client
    from laxity.exits import USAGE, CommandError
    from laxity.widths import parse_widths
    from laxity_profiler.estimate import Workload
    from laxity_profiler.profiling import probes, run

    try:
        widths = parse_widths(workers) or (1,)
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from error
    wanted = probes(source, widths, epochs=epochs, model=model, params=param or [])
    client = Client(patience_s=5.0)
    for width, manifest in wanted.jobs:
        typer.echo(f"{wanted.model}: {epochs} epochs on {width}", err=True)
        run(client, manifest)
    predictor = _predictor(store)
    rows = _rows(predictor, Workload(wanted.model, 1, **wanted.setting), widths)
    if as_json:
        said = {"model": wanted.model, "version": predictor.version, "widths": rows}
        typer.echo(json.dumps(said))
    else:
        _print(_table(Workload(wanted.model, 1), rows))


def _predictor(store: str) -> "HistoryPredictor":
    """What the history of the store comes to."""
    from laxity.client import home
    from laxity.exits import NOT_FOUND, CommandError
    from laxity_profiler.history import History
    from laxity_profiler.learner import Learner
    from laxity_profiler.tables import open_engine

    path = home() / "laxity.db"
    if not store and not Path(path).exists():
        message = f"there is no history at {path}; train something first, or name --store"
        raise CommandError(message, code=NOT_FOUND)
    engine = open_engine(store or f"sqlite:///{path}")
    try:
        return Learner(History(engine)).predictor()
    finally:
        engine.dispose()


def _rows(
    predictor: "HistoryPredictor", workload: "Workload", widths: tuple[int, ...]
) -> list[dict[str, Any]]:
    from laxity_profiler.estimate import NO_PROGRESS, Ask

    whole = predictor.table([Ask(workload, NO_PROGRESS, width) for width in widths])
    return [
        {
            "workers": width,
            "epoch": _figures(predictor.epoch_time(workload, width)),
            "whole": _figures(whole[row]),
            "source": whole.sources[row],
            "n_points": int(whole.n_points[row]),
        }
        for row, width in enumerate(widths)
    ]


def _figures(estimate: "Estimate") -> dict[str, float | None]:
    """Seconds by quantile; null for what cannot be known."""
    figures = {
        "p10_s": estimate.p10_s,
        "p50_s": estimate.p50_s,
        "mean_s": estimate.mean_s,
        "p90_s": estimate.p90_s,
    }
    return {name: value if math.isfinite(value) else None for name, value in figures.items()}


def _table(workload: "Workload", rows: list[dict[str, Any]]) -> "Table":
    """One row per width; the bars compare the speeds."""
    from rich.table import Table

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
        words = [_words(part[name]) for part in parts for name in ("p50_s", "p90_s")]
        speed = BAR * round(BARS * fastest / row["epoch"]["p50_s"]) if row["epoch"]["p50_s"] else ""
        table.add_row(str(row["workers"]), *words, speed, row["source"], str(row["n_points"]))
    return table


def _words(seconds: float | None) -> str:
    from laxity.times import words

    if seconds is None:
        return "not known"
    return f"{1_000 * seconds:.0f}ms" if 0.0 < seconds < 0.95 else words(seconds)


def _print(table: "Table") -> None:
    from rich.console import Console

    Console().print(table)
