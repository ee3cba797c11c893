"""`laxity simulate`, and `laxity bench` beside it."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from laxity_scheduler.simulate.benches import benches
from laxity_scheduler.simulate.catalogue import find, parse_admission
from laxity_scheduler.simulate.costs import COST_NAMES, CostName
from laxity_scheduler.simulate.report import Figures, summary
from laxity_scheduler.simulate.run import Setting
from laxity_scheduler.simulate.sweep import Source, groups, settings, sweep
from laxity_scheduler.simulate.tables import TableError
from laxity_scheduler.simulate.traces import FORMATS, Format, TraceError

TRACES: Final = "LAXITY_TRACES"
SHOWN: Final = (
    "deadline_met_ratio",
    "avg_jct_s",
    "avg_wait_s",
    "makespan_s",
    "gpu_utilisation",
    "preemptions",
    "promises",
    "promises_broken",
)


PolicyOption = Annotated[list[str], typer.Option(help="Policy; repeat for a sweep.")]
TraceOption = Annotated[Path, typer.Option(help=f"A trace; also looked for under ${TRACES}.")]
FormatOption = Annotated[
    str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}; guessed if absent.")
]
ThroughputsOption = Annotated[
    Path | None, typer.Option(help="Folder of throughput tables, MODEL.csv.")
]
NodesOption = Annotated[list[int] | None, typer.Option(help="Nodes; repeat for a sweep.")]
GpusPerNodeOption = Annotated[int, typer.Option(min=1)]
PooledOption = Annotated[bool, typer.Option("--pooled", help="One pool of GPUs, no nodes.")]
FromAtOption = Annotated[
    str, typer.Option("--from", help="ISO date or seconds; jobs from then on.")
]
UntilAtOption = Annotated[str, typer.Option("--until", help="ISO date or seconds, inclusive.")]
CostModelOption = Annotated[
    str, typer.Option(help=f"What stops and resizes cost: {', '.join(COST_NAMES)}.")
]
RestartCostOption = Annotated[
    float | None, typer.Option(min=0.0, help="Seconds per start or change of width (flat).")
]
ErrorOption = Annotated[
    list[float] | None, typer.Option(help="Mean absolute prediction error, a share.")
]
SeedOption = Annotated[int, typer.Option(help="First seed.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="So many seeds, from --seed on.")]
AdmissionOption = Annotated[
    str | None,
    typer.Option(
        help="none, greedy, priced or priced:KAPPA, with any policy; its own rule if absent."
    ),
]
PackingOption = Annotated[str, typer.Option(help="skip or strict (ordered policies).")]
EpochSOption = Annotated[float, typer.Option(min=1.0, help="Seconds of one epoch.")]
BatchOption = Annotated[
    int, typer.Option(min=0, help="A closed batch of so many jobs, drawn by the seed.")
]
FailsSOption = Annotated[
    float, typer.Option(min=0.0, help="A node's mean time between failures; 0: none.")
]
LiteralOption = Annotated[
    bool, typer.Option("--literal", help="A fresh snapshot at each event, always.")
]
BoundOption = Annotated[
    bool, typer.Option("--bound", help="Also the bound on deadlines met (a linear program).")
]
ProcessesOption = Annotated[int | None, typer.Option(min=1, help="Default: all cores.")]
OutOption = Annotated[
    Path | None, typer.Option(help="Folder for runs.json, runs.csv, jobs.csv and pages.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def register(app: typer.Typer) -> None:
    """Add the two commands."""
    app.command("simulate")(simulate)
    app.add_typer(benches(), name="bench")


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
    literal: LiteralOption = False,
    bound: BoundOption = False,
    processes: ProcessesOption = None,
    out: OutOption = None,
    json_: JsonOption = False,
) -> None:
    """Run a policy over a trace of jobs."""
    try:
        source = _source(trace, format_, throughputs, from_at, until_at, batch)
        first = _setting(gpus_per_node, cost_model, restart_cost, admission, packing)
        many = settings(
            _with(first, pooled=pooled, epoch_s=epoch_s, fails_s=fails_s, literal=literal),
            policies=[name for given in policy for name in given.split(",")],
            nodes=nodes or [64],
            errors=error or [0.0],
            seeds=range(seed, seed + seeds),
        )
        for setting in many:
            find(setting.policy)
        reports = sweep(
            source, many, bound=bound, processes=processes, done=_progress(len(many), quiet=json_)
        )
    except (TraceError, TableError, ValueError) as problem:
        typer.echo(f"laxity simulate: {problem}", err=True)
        raise typer.Exit(2) from problem
    if out is not None:
        from laxity_scheduler.simulate.pages import write

        write(out, source, many, reports)
    if reports[0]["bad_lines"]:
        lines, worst = reports[0]["bad_lines"], reports[0]["first_bad_line"]
        typer.echo(f"{source.path.name}: {lines} line(s) set aside; the first, {worst}", err=True)
    _print(reports, as_json=json_)


def _with(
    setting: Setting, *, pooled: bool, epoch_s: float, fails_s: float, literal: bool
) -> Setting:
    from dataclasses import replace

    return replace(setting, pooled=pooled, epoch_s=epoch_s, fails_s=fails_s, literal_cycle=literal)


def _setting(
    gpus_per_node: int,
    cost_model: str,
    restart_cost: float | None,
    admission: str | None,
    packing: str,
) -> Setting:
    if admission is not None:
        parse_admission(admission)
    if packing not in ("skip", "strict"):
        message = f"packing is skip or strict, not {packing!r}"
        raise ValueError(message)
    if cost_model and cost_model not in COST_NAMES:
        message = f"unknown cost model {cost_model!r}: one of {', '.join(COST_NAMES)}"
        raise ValueError(message)
    if restart_cost is not None and cost_model not in ("", "flat"):
        message = f"--restart-cost belongs to the flat cost model, not to {cost_model}"
        raise ValueError(message)
    name: CostName = next((one for one in COST_NAMES if one == cost_model), "flat")
    return Setting(
        policy="",
        nodes=0,
        gpus_per_node=gpus_per_node,
        cost_model=name,
        restart_s=30.0 if restart_cost is None else restart_cost,
        admission=admission,
        packing="strict" if packing == "strict" else "skip",
    )


def _source(  # noqa: PLR0917 - as the options come
    trace: Path, format_: str, throughputs: Path | None, from_at: str, until_at: str, batch: int
) -> Source:
    path = found(trace)
    kind = next((one for one in get_args(Format) if one == (format_ or guessed(path))), None)
    if kind is None:
        message = f"unknown trace format {format_!r}: one of {', '.join(FORMATS)}"
        raise TraceError(message)
    tables = found(throughputs) if throughputs is not None else _tables_beside(path, kind)
    return Source(
        path,
        kind,
        tables,
        instant(from_at) if from_at else -float("inf"),
        instant(until_at) if until_at else float("inf"),
        batch,
    )


def found(path: Path) -> Path:
    """The path, or the same one under LAXITY_TRACES."""
    folder = os.environ.get(TRACES)
    if path.exists() or path.is_absolute() or not folder:
        return path
    return Path(folder) / path


def guessed(path: Path) -> str:
    """The format, from the file's name or its folder's."""
    text = f"{path.parent.name}/{path.name}".lower()
    for format_ in FORMATS:
        if format_ in text:
            return format_
    hints = {"cluster": "itp", "195job": "itp", "vpollux": "elasticflow", "ls6": "mirage"}
    return next((format_ for hint, format_ in hints.items() if hint in text), "")


def _tables_beside(path: Path, format_: Format) -> Path | None:
    """The tables that belong to a trace of the collection, if they lie beside it."""
    if format_ not in ("itp", "elasticflow"):
        return None
    name = "throughputs_A100" if format_ == "itp" else "throughputs_T4"
    for folder in (path.parent / name, path.parent.parent / "elasticflow" / name):
        if folder.is_dir():
            return folder
    message = f"traces of format {format_} need --throughputs, a folder of MODEL.csv"
    raise TraceError(message)


def instant(text: str) -> float:
    """An ISO date (UTC without an offset) or seconds."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is neither a number of seconds nor an ISO date"
        raise ValueError(message) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class _progress:  # noqa: N801 - called like a function
    """Says how many runs are done."""

    def __init__(self, many: int, *, quiet: bool) -> None:
        self.many, self.quiet, self.done = many, quiet or many < 2, 0

    def __call__(self, figures: Figures) -> None:
        self.done += 1
        if not self.quiet:
            typer.echo(
                f"[{self.done}/{self.many}] {figures['policy']} {figures['gpus']} GPUs", err=True
            )


def _print(reports: list[Figures], *, as_json: bool) -> None:
    if as_json and len(reports) == 1:
        typer.echo(json.dumps(_json(reports[0])))
        return
    found_groups = [{**key, **summary(members, SHOWN)} for key, members in groups(reports)]
    if as_json:
        runs = [_json(one) for one in reports]
        typer.echo(json.dumps({"runs": runs, "summary": [_json(one) for one in found_groups]}))
        return
    for group in found_groups:
        typer.echo(f"{group['policy']} on {group['nodes']} node(s), {group['runs']} run(s)")
        for name in SHOWN:
            if name in group:
                half = group.get(f"{name}_ci95") or 0.0
                spread = f" +- {half:,.4g}" if half else ""
                typer.echo(f"  {name:<20} {group[name]:>14,.4f}{spread}")


def _json(figures: Figures) -> Figures:
    """Infinities and not-a-numbers become null."""
    return {
        name: None if isinstance(value, float) and value - value != 0 else value
        for name, value in figures.items()
    }
