"""`laxity profile`: four runs, and the curve that they come to."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from laxity_profiler.cli.profiling import ProfilingPlan
    from laxity_profiler.history.history import TrainingRun
    from laxity_profiler.learning.profile_fit import ProfiledRun, ProfileFit


def profile(
    source: Annotated[
        str, typer.Argument(metavar="FILE|ENTRY", help="YAML of a Job, or module:function.")
    ],
    *,
    workers: Annotated[str, typer.Option(help="Widths to know: 1,2,4 or 1..8.")] = "1,2",
    batch_sizes: Annotated[
        str, typer.Option(help="Global batch sizes to know: 64,256. [the function's own and half]")
    ] = "",
    epochs: Annotated[int, typer.Option(help="Epochs of each run.", min=2)] = 3,
    model: Annotated[
        str | None, typer.Option(help="Name under which the history of its runs is kept.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="KEY=VALUE for the function.")
    ] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Workers that share a node.")] = 8,
    plot: Annotated[Path | None, typer.Option(help="Draw the curve: FILE.png.")] = None,
    store: Annotated[str, typer.Option(help="URL of the store; default: the home's.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON for machines.")] = False,
) -> None:
    """Train a few epochs in four configurations, one after the other, and say what that tells."""
    from laxity.api.client import Client
    from laxity.cli.exit_codes import USAGE, CommandError
    from laxity.job.widths import parse_widths
    from laxity_profiler.cli.open_store import open_store
    from laxity_profiler.cli.profiling import ProfileRequest, plan_runs, run
    from laxity_profiler.learning.profile_fit import fit_profile

    try:
        widths = parse_widths(workers) or (1,)
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from error
    sizes = _parse_batch_sizes(batch_sizes)
    if plot is not None and not plot.resolve().parent.is_dir():
        raise CommandError(f"--plot {plot}: there is no folder {plot.parent}", code=USAGE)
    plan = plan_runs(
        ProfileRequest(
            source, widths, sizes, epochs, model, tuple(param or ()), gpus_per_node=gpus_per_node
        )
    )
    with open_store(store):
        pass  # a store that is not there is missed now, and not after hours of training
    client = Client(patience_s=5.0)
    for number, probe in enumerate(plan.runs, 1):
        size = "" if probe.batch_size is None else f", batch {probe.batch_size}"
        which = f"{epochs} epochs on {probe.width}{size} ({number} of {len(plan.runs)})"
        typer.echo(f"{plan.model}: {which}", err=True)
        run(client, probe.manifest)
    measured, version = _read_measurements(store, plan)
    fitted = fit_profile(measured, widths, plan.batch_sizes, gpus_per_node=gpus_per_node)
    if plot is not None:
        _draw_curve(plot, plan.model, measured, fitted)
    if as_json:
        typer.echo(json.dumps(_json_document(plan.model, version, fitted)))
    else:
        _print_table(plan.model, fitted)


def _parse_batch_sizes(text: str) -> tuple[int, ...]:
    """Batch sizes as they were typed; CommandError if one is none."""
    from laxity.cli.exit_codes import USAGE, CommandError

    sizes = [size.strip() for size in text.split(",")] if text else []
    if not all(re.fullmatch(r"0*[1-9][0-9]{0,8}", size) for size in sizes):
        message = f"--batch-sizes {text[:80]}: write whole numbers from 1 up, such as 64,256"
        raise CommandError(message, code=USAGE)
    return tuple(int(size) for size in sizes)


def _read_measurements(store: str, plan: "ProfilingPlan") -> "tuple[list[ProfiledRun], str]":
    """The epochs of the runs just made, as the store has them, and the predictor's version now."""
    from laxity.cli.exit_codes import CommandError
    from laxity_profiler.cli.open_store import open_store
    from laxity_profiler.history.history import History
    from laxity_profiler.learning.learner import Learner

    with open_store(store) as engine:
        history = History(engine)
        runs = history.epochs(plan.model)
        version = Learner(history).predictor().version
    measurements = []
    for probe in plan.runs:
        measurement = _mean_epoch(runs, probe.width, probe.batch_size)
        if measurement is None:
            size = "" if probe.batch_size is None else f", batch {probe.batch_size}"
            message = f"no epochs of {plan.model} on {probe.width}{size} are in the store"
            raise CommandError(f"{message}; is it the service's? name it with --store")
        measurements.append(measurement)
    return measurements, version


def _mean_epoch(
    runs: "list[TrainingRun]", width: int, batch_size: int | None
) -> "ProfiledRun | None":
    """The latest run in this configuration: its warmed-up epochs, or what there is."""
    from laxity_profiler.learning.profile_fit import ProfiledRun

    for run in reversed(runs):
        epochs = [epoch for epoch in run.epochs if epoch.width == width]
        if not epochs or (batch_size is not None and run.workload.batch_size != batch_size):
            continue
        warm = [epoch.epoch_s for epoch in epochs if not epoch.warmup]
        seconds = warm or [epoch.epoch_s for epoch in epochs]
        return ProfiledRun(width, batch_size, sum(seconds) / len(seconds), len(seconds))
    return None


def _json_document(model: str, version: str, fitted: "ProfileFit") -> dict[str, Any]:
    rows = [
        {
            "workers": point.width,
            "batch_size": point.batch_size,
            "epoch": {"p10_s": point.p10_s, "p50_s": point.p50_s, "p90_s": point.p90_s},
            "profiled": point.is_profiled,
        }
        for point in fitted.points
    ]
    left_out = fitted.left_out_error
    return {"model": model, "version": version, "left_out_error": left_out, "widths": rows}


def _print_table(model: str, fitted: "ProfileFit") -> None:
    from rich.table import Table

    from laxity.cli.render.job_table import console
    from laxity_profiler.cli.format import draw_bar, format_duration

    table = Table(title=model, title_justify="left")
    has_batch = any(point.batch_size is not None for point in fitted.points)
    columns = ("workers", *(("batch",) if has_batch else ()), "epoch P10", "P50", "P90", "error")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("speed", no_wrap=True)
    table.add_column("from")
    fastest = min(point.p50_s for point in fitted.points)
    for point in fitted.points:
        durations = [format_duration(value) for value in (point.p10_s, point.p50_s, point.p90_s)]
        table.add_row(
            str(point.width),
            *((str(point.batch_size),) if has_batch else ()),
            *durations,
            f"+{100 * (point.p90_s / point.p50_s - 1.0):.0f} %",
            draw_bar(fastest / point.p50_s),
            "profiled" if point.is_profiled else "curve",
        )
    console().print(table)
    if fitted.left_out_error is not None:
        off = f"{100 * fitted.left_out_error:.0f} %"
        typer.echo(f"each run predicted from the others is off by {off} (median)")


def _draw_curve(
    path: Path, model: str, measured: "list[ProfiledRun]", fitted: "ProfileFit"
) -> None:
    from laxity_profiler.charts import curve_chart

    curves: dict[str, list[tuple[int, float, float, float]]] = {}
    for point in fitted.points:
        name = model if point.batch_size is None else f"batch {point.batch_size}"
        row = (point.width, point.p10_s, point.p50_s, point.p90_s)
        curves.setdefault(name, []).append(row)
    points = [(run.width, run.epoch_s) for run in measured]
    curve_chart(model, curves, points).savefig(path)
    typer.echo(f"drawn: {path}", err=True)
