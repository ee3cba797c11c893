"""`laxity simulate`."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from laxity.cli.exit_codes import FAILED, USAGE
from laxity.cli.job_names import completing
from laxity.human_time import count_noun
from laxity_lab.simulate.many_runs import combine, sweep
from laxity_lab.simulate.printed import print_reports
from laxity_lab.simulate.progress_bar import ProgressBar
from laxity_lab.simulate.replay import UnsettledError
from laxity_lab.simulate.report import Figures
from laxity_lab.simulate.run import Setting, in_links
from laxity_lab.traces.cases import Case, Source
from laxity_lab.traces.limits import (
    check_counts,
    failing,
    inference_load,
    real,
    runs,
    window,
)
from laxity_lab.traces.throughput_tables import TableError
from laxity_lab.traces.trace_lookup import (
    TRACES,
    format_of,
    list_traces,
    resolve,
    trace_at,
)
from laxity_lab.traces.traces import FORMATS, TraceError
from laxity_scheduler.policies.registry import ADMISSIONS, REGISTRY, find, parse_admission
from laxity_scheduler.simulated.change_costs import COST_NAMES, CostName

PolicyOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME",
        help="Policy (laxity policies lists them); repeat for a sweep.",
        autocompletion=completing(lambda: list(REGISTRY)),
    ),
]
TraceOption = Annotated[
    Path,
    typer.Option(
        help=f"A trace; also looked for under ${TRACES} and in the samples that ship.",
        autocompletion=completing(list_traces),
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        help=f"One of {', '.join(FORMATS)}; guessed if absent.",
        autocompletion=completing(lambda: FORMATS),
    ),
]
ThroughputsOption = Annotated[
    Path | None, typer.Option(help="Folder of throughput tables, MODEL.csv.")
]
NodesOption = Annotated[list[int] | None, typer.Option(help="Nodes; repeat for a sweep.")]
GpusPerNodeOption = Annotated[int, typer.Option(help="GPUs of each node.")]
PooledOption = Annotated[bool, typer.Option("--pooled", help="One pool of GPUs, no nodes.")]
FromAtOption = Annotated[
    str, typer.Option("--from", help="ISO date or seconds; jobs from then on.")
]
UntilAtOption = Annotated[str, typer.Option("--until", help="ISO date or seconds, inclusive.")]
CostModelOption = Annotated[
    str,
    typer.Option(
        help=f"What stops and resizes cost: {', '.join(COST_NAMES)}.",
        autocompletion=completing(lambda: COST_NAMES),
    ),
]
RestartCostOption = Annotated[
    float | None, typer.Option(help="Seconds per start or change of width (flat).")
]
ErrorOption = Annotated[
    list[float] | None,
    typer.Option(help="Mean absolute prediction error, a share (0.2: 20 %); repeat."),
]
SeedOption = Annotated[int, typer.Option(help="First seed.")]
SeedsOption = Annotated[int, typer.Option(help="So many seeds, from --seed on.")]
AdmissionOption = Annotated[
    str | None,
    typer.Option(
        help="none or greedy, with any policy; its own rule if absent.",
        autocompletion=completing(lambda: ADMISSIONS),
    ),
]
PackingOption = Annotated[
    str,
    typer.Option(
        help="skip or strict (ordered policies).",
        autocompletion=completing(lambda: ("skip", "strict")),
    ),
]
EpochSOption = Annotated[float, typer.Option(help="Seconds of one epoch.")]
BatchOption = Annotated[
    int, typer.Option(help="A closed batch of so many jobs, drawn by the seed; 0: the trace.")
]
FailsSOption = Annotated[
    float, typer.Option(help="Seconds between a node's failures on average; 0: none.")
]
EachEpochOption = Annotated[
    bool,
    typer.Option(
        "--each-epoch", help="Decide at each epoch's end too, as the service does; slower."
    ),
]
WallLimitOption = Annotated[
    str, typer.Option(help="No start runs longer (48h): jobs are chains of links. [no limit]")
]
FinishesOption = Annotated[
    bool,
    typer.Option("--finishes", help="Tell each job its finish as it comes; how far off it was."),
]
BoundOption = Annotated[
    bool, typer.Option("--bound", help="Also the bound on deadlines met (a linear program).")
]
ProcessesOption = Annotated[
    int | None, typer.Option(help="Runs side by side; all cores if absent.")
]
InferenceOption = Annotated[
    Path | None,
    typer.Option(help="Load of inference nodes, which are lent: model, start_s, requests_per_s."),
]
InferenceNodesOption = Annotated[
    int | None, typer.Option(help="Inference nodes; as many as --nodes if absent.")
]
OutOption = Annotated[
    Path | None, typer.Option(help="Folder for runs.json, runs.csv, jobs.csv and pages.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    *,
    policy: PolicyOption,
    trace: TraceOption,
    format_: FormatOption = "",
    throughputs: ThroughputsOption = None,
    nodes: NodesOption = None,
    gpus_per_node: GpusPerNodeOption = 8,
    pooled: PooledOption = False,
    from_at: FromAtOption = "",
    until_at: UntilAtOption = "",
    cost_model: CostModelOption = "",
    restart_cost: RestartCostOption = None,
    error: ErrorOption = None,
    seed: SeedOption = 0,
    seeds: SeedsOption = 1,
    admission: AdmissionOption = None,
    packing: PackingOption = "skip",
    epoch_s: EpochSOption = 600.0,
    batch: BatchOption = 0,
    fails_s: FailsSOption = 0.0,
    each_epoch: EachEpochOption = False,
    wall_limit: WallLimitOption = "",
    finishes: FinishesOption = False,
    inference: InferenceOption = None,
    inference_nodes: InferenceNodesOption = None,
    bound: BoundOption = False,
    processes: ProcessesOption = None,
    out: OutOption = None,
    json_: JsonOption = False,
) -> None:
    """Run a policy over a trace of jobs."""
    nodes, errors = nodes or [64], error or [0.0]
    with usage_errors():
        real("--error", errors)
        failing(fails_s, epoch_s)
        check_counts(nodes, gpus_per_node, seed, seeds, batch, processes=processes)
        inference_load(inference, inference_nodes, pooled=pooled)
        policies = [name.strip() for text in policy for name in text.split(",")]
        _check_policies(policies, len(nodes), len(errors), seeds)
        setting = replace(
            _setting(gpus_per_node, cost_model, restart_cost, admission, packing),
            pooled=pooled,
            epoch_s=epoch_s,
            fails_s=fails_s,
            each_epoch=each_epoch,
            tells=finishes,
            inference=str(inference or ""),
            inference_nodes=inference_nodes or 0,
        )
        source = _source(trace, format_, throughputs, from_at, until_at)
        setting, drawn = in_links(setting, wall_limit), range(seed, seed + seeds)
        cases = combine(
            source, setting, batch=batch, policies=policies, nodes=nodes, errors=errors, seeds=drawn
        )
        _can_be_written(out)
        reports = run_sweep(cases, bound=bound, processes=processes, quiet=json_)
    _tell_left_out(source, reports)
    print_reports(reports, as_json=json_)
    _write_pages(out, cases, reports)


def _check_policies(policies: Sequence[str], *others: int) -> None:
    """ValueError if one is unknown or its file is refused, or for too many runs with the others."""
    runs(policies, *others)
    for name in policies:
        find(name).check_file()


def _write_pages(
    out: Path | None, cases: Sequence[tuple[Case, Setting]], reports: Sequence[Figures]
) -> None:
    if out is None:
        return
    from laxity_lab.simulate.pages import write

    write(out, cases, reports)
    typer.echo(f"written to {out}: see {out / 'page.html'}", err=True)


def _tell_left_out(source: Source, reports: Sequence[Figures]) -> None:
    """Tell which lines of the trace could not be used, and how many decisions did not fit."""
    if bad_lines := reports[0]["bad_lines"]:
        first = reports[0]["first_bad_line"]
        text = f"{count_noun(bad_lines, 'line')} set aside; the first, {first}"
        typer.echo(f"{source.path.name}: {text}", err=True)
    if dropped := sum(report["decisions_dropped"] for report in reports):
        text = "did not fit and were dropped; the log names each job once"
        typer.echo(f"{count_noun(dropped, 'decision')} {text}", err=True)


@contextmanager
def usage_errors() -> Iterator[None]:
    """What cannot be simulated is a sentence and an exit code."""
    try:
        yield
    except (TraceError, TableError, ValueError) as problem:
        typer.echo(f"laxity simulate: {problem}", err=True)
        raise typer.Exit(USAGE) from problem
    except UnsettledError as problem:
        typer.echo(f"laxity simulate: the policy comes to no end: {problem}", err=True)
        raise typer.Exit(FAILED) from problem
    except BrokenProcessPool as problem:
        text = "a process of the sweep was killed, perhaps for memory: try fewer --processes"
        typer.echo(f"laxity simulate: {text}", err=True)
        raise typer.Exit(FAILED) from problem


def run_sweep(
    cases: list[tuple[Case, Setting]], *, bound: bool, processes: int | None, quiet: bool
) -> list[Figures]:
    screen = ProgressBar(len(cases), quiet=quiet)
    try:
        return sweep(
            cases,
            bound=bound,
            processes=processes,
            done=screen.finish_run,
            ended=screen.count_ended,
        )
    finally:
        screen.clear()


def _can_be_written(folder: Path | None) -> None:
    """Asked before hours of simulation rather than after."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ValueError(f"--out {folder} cannot be made: {problem.strerror}") from problem
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"--out {folder} cannot be written to: it is not yours to write")


def _setting(
    gpus_per_node: int,
    cost_model: str,
    restart_cost: float | None,
    admission: str | None,
    packing: str,
) -> Setting:
    real("--restart-cost", [] if restart_cost is None else [restart_cost])
    if admission is not None:
        parse_admission(admission)
    if packing not in ("skip", "strict"):
        raise ValueError(f"--packing is skip or strict, not {packing!r}")
    if cost_model and cost_model not in COST_NAMES:
        raise ValueError(f"unknown cost model {cost_model!r}: one of {', '.join(COST_NAMES)}")
    if restart_cost is not None and cost_model not in ("", "flat"):
        raise ValueError(f"--restart-cost belongs to the flat cost model, not to {cost_model}")
    name: CostName = next(
        (cost_name for cost_name in COST_NAMES if cost_name == cost_model), "flat"
    )
    return Setting(
        policy="",
        nodes=0,
        gpus_per_node=gpus_per_node,
        cost_model=name,
        restart_s=30.0 if restart_cost is None else restart_cost,
        admission=admission,
        packing="strict" if packing == "strict" else "skip",
    )


def _source(
    trace: Path, format_: str, throughputs: Path | None, from_at: str, until_at: str
) -> Source:
    from_s, until_s = window(from_at, until_at)
    path = trace_at(trace)
    tables = None if throughputs is None else resolve(throughputs)
    return Source(path, format_of(path, format_), tables, from_s, until_s)
