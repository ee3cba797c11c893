"""The command that shows everything at work on this machine."""

from pathlib import Path
from typing import Annotated, Final

import typer

from laxity.cli.exit_codes import CommandError

HAS_DEMO: Final = (Path(__file__).parents[2] / "examples" / "demo").is_dir()  # in a clone


def demo(
    *,
    folder: Annotated[
        Path, typer.Option("--home", help="Where its state goes; an earlier one is wiped.")
    ] = Path(".laxity/demo"),
    slots: Annotated[int, typer.Option(help="Workers that may run at a time.", min=3, max=8)] = 3,
) -> None:
    """Train real jobs under deadlines here, in two minutes."""
    if not HAS_DEMO:
        raise CommandError(
            "the demo comes with a clone of laxity, not with an installed package: "
            "clone it, then make demo"
        )
    from examples.demo.acts import play_demo

    raise typer.Exit(play_demo(folder.resolve(), slots=slots))
