"""`laxity refit`: once, or again and again."""

import json
import os
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from laxity.cli.exit_codes import AWAY, FAILED, USAGE, CommandError

if TYPE_CHECKING:
    from laxity_profiler.registry.refit import RefitResult

# MLflow's own defaults try a dead server for four minutes, print addresses among our JSON, and
# draw a bar for each small file.
MLFLOW_ENV: Final = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
SHORTEST_S: Final = 1.0


def refit(
    *,
    store: Annotated[
        str, typer.Option(envvar="LAXITY_STORE", help="URL of the store; default: the home's.")
    ] = "",
    tracking_uri: Annotated[
        str,
        typer.Option(envvar="MLFLOW_TRACKING_URI", help="MLflow store. [HOME/mlflow.db]"),
    ] = "",
    every: Annotated[str, typer.Option(help="Again after so long, until it is stopped: 1h.")] = "",
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per refit.")] = False,
) -> None:
    """Learn what MLflow has that is new; register changed predictors and draw their calibration."""
    from laxity.api.client import home_folder
    from laxity.durations import parse_duration

    try:
        pause_s = parse_duration(every).total_seconds() if every else 0.0
    except ValueError as error:
        raise CommandError(f"--every {every}: {error}", code=USAGE) from error
    if every and pause_s < SHORTEST_S:
        raise CommandError(f"--every {every}: at least {SHORTEST_S:.0f} s are wanted", code=USAGE)
    for name, value in MLFLOW_ENV.items():
        os.environ.setdefault(name, value)
    uri = tracking_uri or f"sqlite:///{home_folder() / 'mlflow.db'}"
    while True:
        try:
            _print_result(_refit_once(store, uri), as_json=json_)
        except CommandError as error:
            if not every:
                raise
            typer.echo(f"{error}; again in {every}", err=True)
        if not every:
            return
        time.sleep(pause_s)


def _refit_once(store: str, uri: str) -> "RefitResult":
    from laxity_profiler.cli.open_store import open_store
    from laxity_profiler.history.store_lease import LeaseHeldError
    from laxity_profiler.registry.mlflow_errors import MlflowAwayError
    from laxity_profiler.registry.refit import refit as refitted

    try:
        with open_store(store, may_make=True) as engine:
            return refitted(engine, uri, say=lambda words: typer.echo(words, err=True))
    except MlflowAwayError as error:
        raise CommandError(str(error), code=AWAY) from error
    except LeaseHeldError as error:
        raise CommandError(f"another refit is running: {error}", code=FAILED) from error


def _print_result(result: "RefitResult", *, as_json: bool) -> None:
    document: dict[str, Any] = {
        "predictor": result.predictor,
        "runs_read": result.runs_read,
        "models": len(result.published),
        "new_versions": [
            {"model": published.name, "version": published.version} for published in result.new
        ],
        "view": result.view,
        "view_is_new": result.is_view_new,
    }
    if as_json:
        typer.echo(json.dumps(document))
        return
    versions = (
        ", ".join(f"{published.name} {published.version}" for published in result.new) or "none"
    )
    typer.echo(
        f"predictor {result.predictor}: {len(result.published)} models, new versions: {versions}"
    )
    typer.echo(
        f"calibration in MLflow run {result.view}" + ("" if result.is_view_new else ", unchanged")
    )
