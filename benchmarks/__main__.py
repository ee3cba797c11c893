"""`python -m benchmarks [KIND]`, at the root of a clone: each kind is a subcommand."""

from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from benchmarks.acting_command import bench_acting
from benchmarks.answer_speed import answers
from benchmarks.ingest import ingest
from benchmarks.prediction_errors import prediction
from benchmarks.results import show
from laxity.cli.exit_codes import run_app
from laxity.cli.lazy_commands import WholeHelpGroup

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Quick = Annotated[bool, typer.Option("--quick", help="A tenth of the work.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Cost of a decision over jobs, as PNG, there.")
]


def main() -> NoReturn:
    app = typer.Typer(
        cls=WholeHelpGroup,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
    )
    app.callback()(bench)
    benches(app)
    run_app(partial(app, prog_name="python -m benchmarks"))


def benches(app: typer.Typer) -> None:
    """Add each kind as a command."""
    app.command("all")(everything)
    app.command("simulator")(simulator)
    app.command("decision")(decision)
    app.command("acting")(bench_acting)
    app.command("answers")(answers)
    app.command("ingest")(ingest)
    app.command("prediction")(prediction)


def bench(context: typer.Context, *, json_: AsJson = False, quick: Quick = False) -> None:
    """Measure this machine, a cluster, or predictions; without a command, this machine."""
    if context.invoked_subcommand is None:
        everything(json_=json_, quick=quick)


def everything(*, json_: AsJson = False, quick: Quick = False, plot: Plot = None) -> None:
    """Simulator and decision."""
    from benchmarks.speed import KINDS

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
    from benchmarks.bench_scaling import draw
    from benchmarks.speed import measure

    figures = measure(kinds, quick=quick)
    if plot is not None:
        draw(figures, plot)
    show(figures, as_json=json_, beside="a plain loop, or n log n")


if __name__ == "__main__":
    main()
