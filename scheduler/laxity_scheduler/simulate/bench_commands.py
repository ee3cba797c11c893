"""`laxity bench [KIND]`: the simulator's own kinds, and those that other floors register."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from laxity.bench_results import BENCHES, show

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Quick = Annotated[bool, typer.Option("--quick", help="A tenth of the work.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Cost of a decision over jobs, as PNG, there.")
]


def benches() -> typer.Typer:
    """All kinds as one group; without a kind, those that need nothing but this machine."""
    app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    app.callback()(bench)
    app.command("all")(everything)
    app.command("simulator")(simulator)
    app.command("decision")(decision)
    for entry in sorted(entry_points(group=BENCHES), key=lambda entry: entry.name):
        entry.load()(app)
    return app


def bench(context: typer.Context, *, json_: AsJson = False, quick: Quick = False) -> None:
    """Count jobs and decisions per second on this machine."""
    if context.invoked_subcommand is None:
        everything(json_=json_, quick=quick)


def everything(*, json_: AsJson = False, quick: Quick = False, plot: Plot = None) -> None:
    """Simulator and decision."""
    from laxity_scheduler.simulate.bench import KINDS

    print_figures(KINDS, json_=json_, quick=quick, plot=plot)


def simulator(*, json_: AsJson = False, quick: Quick = False) -> None:
    """Jobs per second of simulated traces."""
    print_figures(("simulator",), json_=json_, quick=quick)


def decision(*, json_: AsJson = False, quick: Quick = False, plot: Plot = None) -> None:
    """Milliseconds of one decision, cold and warm, and how they grow with the number of jobs."""
    print_figures(("decision",), json_=json_, quick=quick, plot=plot)


def print_figures(
    kinds: tuple[str, ...], *, json_: bool, quick: bool, plot: Path | None = None
) -> None:
    from laxity_scheduler.simulate.bench import measure
    from laxity_scheduler.simulate.bench_scaling import draw

    figures = measure(kinds, quick=quick)
    if plot is not None:
        draw(figures, plot)
    show(figures, as_json=json_, beside="a plain loop, or n log n")
