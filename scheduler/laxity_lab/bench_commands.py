"""`laxity bench [KIND]`: each kind is a subcommand."""

from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.lazy_commands import WholeHelpGroup
from laxity_lab.bench_results import show

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Quick = Annotated[bool, typer.Option("--quick", help="A tenth of the work.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Cost of a decision over jobs, as PNG, there.")
]


def register(app: typer.Typer) -> None:
    """Add all kinds as one group; without a kind, those that need nothing but this machine."""
    group = typer.Typer(cls=WholeHelpGroup, invoke_without_command=True, rich_markup_mode=None)
    group.callback()(bench)
    benches(group)
    app.add_typer(group, name="bench")


def benches(app: typer.Typer) -> None:
    """Add each kind as a command."""
    from laxity_lab.batch_queue.commands import chains
    from laxity_lab.bench.acting_command import bench_acting
    from laxity_lab.bench.answer_speed import answers
    from laxity_lab.bench.ingest import ingest
    from laxity_lab.bench.prediction_errors import prediction

    app.command("all")(everything)
    app.command("simulator")(simulator)
    app.command("decision")(decision)
    app.command("acting")(bench_acting)
    app.command("chains")(chains)
    app.command("answers")(answers)
    app.command("ingest")(ingest)
    app.command("prediction")(prediction)


def bench(context: typer.Context, *, json_: AsJson = False, quick: Quick = False) -> None:
    """Measure this machine, a cluster, or predictions; without a command, this machine."""
    if context.invoked_subcommand is None:
        everything(json_=json_, quick=quick)


def everything(*, json_: AsJson = False, quick: Quick = False, plot: Plot = None) -> None:
    """Simulator and decision."""
    from laxity_lab.bench.bench import KINDS

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
    from laxity_lab.bench.bench import measure
    from laxity_lab.bench.bench_scaling import draw

    figures = measure(kinds, quick=quick)
    if plot is not None:
        draw(figures, plot)
    show(figures, as_json=json_, beside="a plain loop, or n log n")
