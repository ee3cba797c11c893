"""`laxity bench [KIND]`: each kind is a subcommand."""

from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.exit_codes import USAGE, CommandError
from laxity.cli.lazy_commands import WholeHelpGroup
from laxity_lab.bench_results import show

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
    from laxity_lab.policy_training.bench_command import learned

    app.command("all")(everything)
    app.command("simulator")(simulator)
    app.command("decision")(decision)
    app.command("loans")(loans)
    app.command("acting")(bench_acting)
    app.command("chains")(chains)
    app.command("learned")(learned)
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


def loans(
    *,
    small: Small = False,
    jobs: Jobs = 5_000,
    load: Load = 1.0,
    seed: Seed = 0,
    json_: AsJson = False,
) -> None:
    """What lent inference nodes and elastic jobs are worth to a queue (policy aryl, Philly's jobs)."""
    from laxity_lab.bench.bench_loans import SMALL_LOAD, LoanBench, measure_loans
    from laxity_lab.traces.trace_lookup import SAMPLES, trace_at
    from laxity_lab.traces.traces import TraceError
    from laxity_lab.traces.traces import load as load_trace

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
