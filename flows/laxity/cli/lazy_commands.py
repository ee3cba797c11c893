"""The commands of the other floors: their names and help, so that `--help` imports none of them.

A floor registers its commands under the entry point group `laxity.commands` as a function
`register(app: typer.Typer)`. Here stands what `laxity --help` says of them; the floor's own Typer
command, with its options, is loaded when it is called.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from laxity.cli.exit_codes import FAILED, MEANINGS, CommandError

JOBS: Final = "Jobs"
ASK: Final = "Questions"
SERVICE: Final = "Service"
STUDY: Final = "Studies"
WHOLE: Final = 1_000  # characters
PANELS: Final = (JOBS, ASK, SERVICE, STUDY)


@dataclass(frozen=True, slots=True)
class FloorCommand:
    """One command of another floor; `entry` is its entry point's name."""

    name: str
    entry: str
    panel: str
    help: str


FLOOR_COMMANDS: Final = (
    FloorCommand("up", "service", SERVICE, "Start the service on this machine, in the background."),
    FloorCommand("down", "service", SERVICE, "Stop the service on this machine, and its workers."),
    FloorCommand("serve", "service", SERVICE, "Run the service in the foreground."),
    FloorCommand(
        "policies", "service", SERVICE, "List the policies: what each does, and if it promises."
    ),
    FloorCommand("replay", "service", ASK, "Decide a journal again and compare, byte for byte."),
    FloorCommand("profile", "profile", STUDY, "Measure a training at several widths."),
    FloorCommand("predict", "profile", STUDY, "Say how long a model will train, and how sure."),
    FloorCommand("refit", "profile", STUDY, "Learn from MLflow, and show there what was learned."),
    FloorCommand("simulate", "simulate", STUDY, "Run a policy over a trace of jobs."),
    FloorCommand(
        "train", "train", STUDY, "Learn a policy, or when to submit the next job of a chain."
    ),
    FloorCommand(
        "chain", "chain", JOBS, "Run a training as a chain of batch jobs, on Slurm or as Jobs."
    ),
    FloorCommand("bench", "bench", STUDY, "Measure when to submit the next job of a chain."),
)
BY_NAME: Final = {command.name: command for command in FLOOR_COMMANDS}
CALLED: Final = {
    **dict.fromkeys(("list", "ps", "queue", "squeue"), "ls"),
    **dict.fromkeys(("describe", "get", "info", "status"), "show"),
    **dict.fromkeys(("delete", "kill", "rm", "scancel", "stop"), "cancel"),
    **dict.fromkeys(("apply", "create", "sbatch"), "submit"),
    **dict.fromkeys(("dry-run", "plan", "what-if"), "whatif"),
    "estimate": "predict",
    "log": "logs",
    "start": "up",
    "watch": "top",
    "why": "explain",
}  # what other tools call it
EPILOG: Final = "Exit codes: " + ", ".join(
    f"{code} {meaning}" for code, meaning in MEANINGS.items()
)


class WholeHelpGroup(TyperGroup):
    """A group whose help has the first sentence of each command whole: Click cuts it at a line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [
            (name, command.get_short_help_str(WHOLE)) for name, command in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class FloorsGroup(TyperGroup):
    """A group in which a command of another floor is a name with a help text until it is called.

    Its help is plain text under one heading per panel: Rich's help costs 0.2 s at each start.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for panel in PANELS:
            rows = [
                (name, command.get_short_help_str(formatter.width))
                for name, command in self.commands.items()
                if not command.hidden and getattr(command, "rich_help_panel", None) == panel
            ]
            with formatter.section(panel):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in CALLED and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}: here it is called {CALLED[args[0]]!r}.")
        name, command, rest = super().resolve_command(ctx, args)
        if name in BY_NAME:
            return name, load_command(BY_NAME[name]), rest
        return name, command, rest


def stub_command(command: FloorCommand) -> Any:
    """A function that stands in the list of commands for one that is loaded later."""

    def later() -> None:
        raise AssertionError(command.name)  # FloorsGroup resolves the real one

    later.__doc__ = command.help
    later.__name__ = command.name
    return later


def load_command(command: FloorCommand) -> TyperCommand | TyperGroup:
    """The floor's own command. CommandError if that part of laxity is not installed."""
    from importlib.metadata import entry_points

    entries = [
        entry for entry in entry_points(group="laxity.commands") if entry.name == command.entry
    ]
    if not entries:
        message = f"{command.name} is not installed here: pip install '.[all]' in laxity's clone"
        raise CommandError(message, code=FAILED)
    try:
        register = entries[0].load()
    except ImportError as error:
        message = (
            f"{command.name} cannot be loaded ({error}): pip install '.[all]' in laxity's clone"
        )
        raise CommandError(message, code=FAILED) from error
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lambda: None)  # with a callback it stays a group, however few its commands
    register(app)
    group = cast("TyperGroup", typer.main.get_command(app))
    if command.name not in group.commands:
        raise CommandError(f"{entries[0].value} registers no command {command.name}")
    return cast("TyperCommand", group.commands[command.name])
