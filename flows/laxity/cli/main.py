"""The command `laxity`: what people and scripts type.

The command line starts in a fraction of a second: nothing heavy is imported before the command that
needs it runs, and the commands of other floors are only names until they are called.
"""

import sys
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from typing import Annotated, Final, NoReturn

import typer

from laxity import names
from laxity.cli import commands_jobs, commands_pool, commands_run, commands_show, commands_why
from laxity.cli.commands_demo import HAS_DEMO, demo
from laxity.cli.exit_codes import run_app
from laxity.cli.lazy_commands import (
    ASK,
    EPILOG,
    FLOOR_COMMANDS,
    JOBS,
    SERVICE,
    FloorsGroup,
    stub_command,
)
from laxity.cli.variable_set import variable_set

app = typer.Typer(
    name="laxity",
    cls=FloorsGroup,
    help="Deadlines for deep-learning training: promised or refused with a reason, then kept.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if wanted:
        from importlib.metadata import version

        typer.echo(f"laxity {version('laxity')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    url: Annotated[
        str | None, typer.Option(envvar=names.ENV_URL, help="Address of the service.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if url:
        context.with_resource(variable_set(names.ENV_URL, url))


COMMANDS: Final[tuple[tuple[str, tuple[Callable[..., None], ...]], ...]] = (
    (
        JOBS,
        (
            commands_jobs.submit,
            commands_run.run,
            commands_show.ls,
            commands_show.top,
            commands_show.ui,
            commands_show.show,
            commands_show.logs,
            commands_jobs.accept,
            commands_jobs.amend,
            commands_jobs.cancel,
            commands_jobs.release,
            commands_pool.workpool,
        ),
    ),
    (ASK, (commands_why.explain, commands_why.whatif, commands_why.decisions, commands_why.mcp)),
    (SERVICE, (demo, commands_show.cluster)),
)
# What follows the first word of the script's command is the script's.
SETTINGS: Final = {commands_run.run: {"allow_interspersed_args": False}}
for panel, commands in COMMANDS:
    for command in commands:
        app.command(
            rich_help_panel=panel,
            hidden=command is demo and not HAS_DEMO,
            context_settings=SETTINGS.get(command),
        )(command)
app.command("nodes", hidden=True)(commands_show.cluster)
for floor in FLOOR_COMMANDS:
    app.command(floor.name, rich_help_panel=floor.panel)(stub_command(floor))


def main() -> NoReturn:
    """The console script. A character that the terminal's encoding lacks is shown as its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    run_app(partial(app, prog_name="laxity"))  # its name also where `python -m` started it


if __name__ == "__main__":
    main()
