"""`laxity train promote` and `laxity train versions`: which version of a trained model is in use."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from laxity.cli.exit_codes import AWAY, NOT_FOUND, CommandError

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
    from laxity_profiler.registry.registered_files import move_alias

    with _exit_codes():
        move_alias(tracking_store(tracking_uri), name, alias, version)
    typer.echo(f"{name} version {version} is the {alias}")


def versions(
    name: NameArgument,
    *,
    tracking_uri: StoreOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON for machines.")] = False,
) -> None:
    """List the versions of a registered model: figures, and which alias names which."""
    from laxity_profiler.registry.registered_files import list_versions

    with _exit_codes():
        there = list_versions(tracking_store(tracking_uri), name)
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


@contextmanager
def _exit_codes() -> Iterator[None]:
    """What MLflow lacks, and an MLflow that does not answer, end the command each with its code."""
    from laxity_profiler.registry.mlflow_errors import MlflowAwayError, NotInMlflowError

    try:
        yield
    except MlflowAwayError as error:
        code = NOT_FOUND if isinstance(error, NotInMlflowError) else AWAY
        raise CommandError(str(error), code=code) from error


def _version_line(row: dict[str, Any]) -> str:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in sorted(row["figures"].items()))
    return f"{row['version']:>4}  {', '.join(row['aliases']) or '-':<20}  {figures}"
