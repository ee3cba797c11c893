"""`laxity train promote` and `laxity train versions`: which version of a trained model is in use."""

import json
import os
from typing import Annotated, Any

import typer

from laxity.cli.exit_codes import AWAY, CommandError

NameArgument = Annotated[str, typer.Argument(help="The registered model.")]
StoreOption = Annotated[
    str,
    typer.Option(
        "--tracking-uri", envvar="MLFLOW_TRACKING_URI", help="MLflow store. [HOME/mlflow.db]"
    ),
]


def promote(
    name: NameArgument,
    version: Annotated[str, typer.Argument(help="The version; an earlier one rolls back.")],
    *,
    alias: Annotated[str, typer.Option(help="The alias that is to name it.")] = "champion",
    tracking_uri: StoreOption = "",
) -> None:
    """Put a registered version in use: a service with --policy models:/NAME@ALIAS follows."""
    from laxity_profiler.registry.mlflow_errors import MlflowAwayError
    from laxity_profiler.registry.registered_files import move_alias

    try:
        move_alias(tracking_store(tracking_uri), name, alias, version)
    except MlflowAwayError as error:
        raise CommandError(str(error), code=AWAY) from error
    typer.echo(f"{name} version {version} is the {alias}")


def versions(
    name: NameArgument,
    *,
    tracking_uri: StoreOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON for machines.")] = False,
) -> None:
    """List the versions of a registered model: figures, and which alias names which."""
    from laxity_profiler.registry.mlflow_errors import MlflowAwayError
    from laxity_profiler.registry.registered_files import list_versions

    try:
        there = list_versions(tracking_store(tracking_uri), name)
    except MlflowAwayError as error:
        raise CommandError(str(error), code=AWAY) from error
    rows: list[dict[str, Any]] = [
        {"version": each.version, "aliases": list(each.aliases), "figures": dict(each.metrics)}
        for each in there
    ]
    typer.echo(json.dumps(rows) if as_json else "\n".join(map(_version_line, rows)))


def tracking_store(tracking_uri: str) -> str:
    """The user's MLflow, else the home's; it says nothing on the way."""
    from laxity.api.client import home_folder
    from laxity_profiler.cli.refit_command import MLFLOW_ENV

    for name, value in MLFLOW_ENV.items():
        os.environ.setdefault(name, value)
    return tracking_uri or f"sqlite:///{home_folder() / 'mlflow.db'}"


def _version_line(row: dict[str, Any]) -> str:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in sorted(row["figures"].items()))
    return f"{row['version']:>4}  {', '.join(row['aliases']) or '-':<20}  {figures}"
