"""`laxity bench [KIND]`: the simulator's own kinds, and those that other floors register."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from laxity.bench_results import BENCHES, show
from laxity.cli.exit_codes import USAGE, CommandError
from laxity.cli.lazy_commands import WholeHelpGroup

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Quick = Annotated[bool, typer.Option("--quick", help="A tenth of the work.")]
Small = Annotated[bool, typer.Option("--small", help="The sample that ships, in seconds.")]
Jobs = Annotated[int, typer.Option(min=0, help="Sample of so many jobs; 0: all 47,617.")]
Load = Annotated[
    float,
    typer.Option(min=0.05, max=10.0, help="GPU time of the jobs over that of training nodes."),
]
Seed = Annotated[int, typer.Option(min=0, help="Of samples and of kinds of jobs.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Cost of a decision over jobs, as PNG, there.")
]


def benches() -> typer.Typer:
    """All kinds as one group; without a kind, those that need nothing but this machine."""
    app = typer.Typer(cls=WholeHelpGroup, invoke_without_command=True, rich_markup_mode=None)
    app.callback()(bench)
    app.command("all")(everything)
    app.command("simulator")(simulator)
    app.command("decision")(decision)
    app.command("loans")(loans)
    for entry in sorted(entry_points(group=BENCHES), key=lambda entry: entry.name):
        entry.load()(app)
    return app


def bench(context: typer.Context, *, json_: AsJson = False, quick: Quick = False) -> None:
    """Measure this machine, a cluster, or predictions; without a command, this machine."""
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


def loans(
    *,
    small: Small = False,
    jobs: Jobs = 5_000,
    load: Load = 1.0,
    seed: Seed = 0,
    json_: AsJson = False,
) -> None:
    """What lent inference nodes and elastic jobs are worth to a queue (policy aryl, Philly's jobs)."""
    from laxity_scheduler.simulate.bench_loans import SMALL_LOAD, LoanBench, measure_loans
    from laxity_scheduler.simulate.trace_lookup import SAMPLES, trace_at
    from laxity_scheduler.simulate.traces import TraceError
    from laxity_scheduler.simulate.traces import load as load_trace

    name = Path("philly/philly.csv")
    try:
        trace = load_trace(SAMPLES / name if small else trace_at(name), "philly")
    except TraceError as error:
        raise CommandError(str(error), code=USAGE) from error
    size = (
        LoanBench(0, SMALL_LOAD, seed, reclaims=50, knapsacks=5)
        if small
        else LoanBench(jobs, load, seed)
    )
    show(measure_loans(trace, size, lambda text: typer.echo(text, err=True)), as_json=json_)
