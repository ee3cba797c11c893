"""`laxity bench chains`: what simple users of a batch cluster lose between two links of a chain."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from laxity.cli.exit_codes import AWAY, USAGE, CommandError
from laxity.cli.job_names import completing
from laxity.cli.lazy_commands import WholeHelpGroup
from laxity_scheduler.chains.choices import (
    LOG_FORMATS,
    METHODS_WITHOUT_MODEL,
    MODELS,
    STARTS,
    LogFormat,
    Start,
    check_choice,
)
from laxity_scheduler.chains.options import PricesOption, duration_s

if TYPE_CHECKING:
    from laxity_lab.batch_queue.baselines import Method
    from laxity_lab.batch_queue.intervals import IntervalMetric
    from laxity_lab.batch_queue.learned_method import LearnedMethod
    from laxity_lab.batch_queue.queue_log import QueueLog
    from laxity_lab.batch_queue.successor import PairSettings
    from laxity_scheduler.chains.model_file import Provisioner

SHOWN_BAD_LINES: Final = 3
SMALL: Final = 0.1

TraceOption = Annotated[
    Path, typer.Option(help="A queue log; also looked for under $LAXITY_TRACES.")
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        help=f"{', '.join(LOG_FORMATS)}; guessed if absent.",
        autocompletion=completing(lambda: LOG_FORMATS),
    ),
]
NodesOption = Annotated[
    int | None, typer.Option(min=1, help="Nodes. [as the log states, or most busy at once]")
]
PairNodesOption = Annotated[int, typer.Option(min=1, help="Nodes of each job of the chain.")]
LimitOption = Annotated[str, typer.Option(help="Time limit of each job of the chain.")]
StartsOption = Annotated[float, typer.Option(min=0.1, help="Hours from one start to the next.")]
FromOption = Annotated[
    str, typer.Option("--from", help="First start: a date or seconds. [the log's last quarter]")
]
UntilOption = Annotated[
    str, typer.Option(help="Jobs of all pairs are submitted before this instant.")
]
WarmUpOption = Annotated[str, typer.Option(help="Simulated before the predecessor is submitted.")]
StartOption = Annotated[
    str,
    typer.Option(
        help="running: with the jobs that ran and waited in the log. empty: as Mirage's release, "
        "without, and without arrivals a day after the predecessor's end.",
        autocompletion=completing(lambda: STARTS),
    ),
]
MethodOption = Annotated[
    list[str] | None,
    typer.Option(
        help=f"{', '.join(METHODS_WITHOUT_MODEL)}; with --model {', '.join(MODELS)}; repeat. [all]",
        autocompletion=completing(lambda: METHODS_WITHOUT_MODEL + MODELS),
    ),
]
ModelOption = Annotated[
    list[Path] | None,
    typer.Option(
        help="A file of `laxity train provisioner`, or models:/NAME@ALIAS in MLflow; "
        "repeat for several methods."
    ),
]
TrackingOption = Annotated[
    str, typer.Option(envvar="MLFLOW_TRACKING_URI", help="MLflow store. [HOME/mlflow.db]")
]
ProbesOption = Annotated[
    int, typer.Option(min=0, help="Evenly spaced probes of each start besides, to see how fast.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def register(app: typer.Typer) -> None:
    """Add `bench chains`."""
    group = typer.Typer(
        cls=WholeHelpGroup,
        help="Measure on a queue's log when to submit the next job of a chain.",
        rich_markup_mode=None,
    )
    group.callback()(lambda: None)
    group.command("chains")(chains)
    app.add_typer(group, name="bench")


def chains(
    *,
    trace: TraceOption,
    format_: FormatOption = "",
    nodes: NodesOption = None,
    pair_nodes: PairNodesOption = 1,
    limit: LimitOption = "48h",
    starts: StartsOption = 16.0,
    from_at: FromOption = "",
    until: UntilOption = "",
    warm_up: WarmUpOption = "2d",
    start: StartOption = "running",
    method: MethodOption = None,
    model: ModelOption = None,
    prices: PricesOption = "1:1",
    tracking_uri: TrackingOption = "",
    probes: ProbesOption = 0,
    json_: JsonOption = False,
) -> None:
    """Interruption and overlap between two jobs of a chain, in a cluster that replays a queue log."""
    from laxity_lab.batch_queue import pair_bench
    from laxity_lab.batch_queue.baselines import METHODS
    from laxity_lab.batch_queue.intervals import interval_figure
    from laxity_lab.traces.limits import window
    from laxity_scheduler.model.job import HOUR_S

    try:
        log = read_log(trace, format_)
        first_at, last_at = window(from_at, until)
        settings = pair_settings(log, nodes, pair_nodes, limit=limit, warm_up=warm_up, start=start)
        models = {path: open_model(path, tracking_uri) for path in model or ()}
        learned = methods_of(models, prices, settings)
        wanted = check_methods(method, learned)
        first_at = first_at if from_at else pair_bench.last_quarter_at(log, last_at)
        instants = pair_bench.start_instants(log, settings, HOUR_S * starts, first_at, last_at)
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from error
    say_log(log, settings)
    known: dict[str, Method] = {**METHODS, **learned}
    methods = {name: known[name] for name in ("reactive", *wanted)}
    with typer.progressbar(instants, label=f"{len(instants)} starts", file=sys.stderr) as counted:
        result = pair_bench.run_methods(log, settings, counted, methods, probes)
    block = pair_bench.block_length(settings, HOUR_S * starts)
    figures = pair_bench.method_figures(result.difference_h, pair_nodes, block)
    run = pair_bench.run_figures(log, result) | pair_bench.wait_figures(
        log, settings, first_at, last_at
    )
    run |= decision_figures(learned)
    run["nodes"] = interval_figure(settings.cluster_nodes, "nodes")
    show({name: figures[name] for name in wanted} | {"run": run}, as_json=json_)


def read_log(path: Path, log_format: str) -> "QueueLog":
    """The log at this path. ValueError if there is none, or none that can be read."""
    from laxity_lab.batch_queue.log_formats import guess_log_format, load_queue_log
    from laxity_lab.traces.trace_lookup import trace_at

    file = trace_at(path)
    if not log_format:
        return load_queue_log(file, guess_log_format(file))
    check_choice(log_format, LOG_FORMATS, "unknown log format")
    return load_queue_log(file, cast("LogFormat", log_format))


def pair_settings(
    log: "QueueLog", nodes: int | None, pair_nodes: int, *, limit: str, warm_up: str, start: str
) -> "PairSettings":
    """The pair and its cluster. ValueError says which option is wrong."""
    from laxity_lab.batch_queue.pair_bench import span_s
    from laxity_lab.batch_queue.successor import PairSettings

    check_choice(start, STARTS, "--start")
    cluster_nodes = nodes or log.cluster_nodes
    if pair_nodes > cluster_nodes:
        raise ValueError(f"--pair-nodes {pair_nodes}: the cluster has {cluster_nodes} nodes")
    settings = PairSettings(
        cluster_nodes,
        nodes=pair_nodes,
        limit_s=duration_s(limit, "--limit"),
        warm_up_s=0.0 if warm_up in ("0", "0s") else duration_s(warm_up, "--warm-up"),
        start=cast("Start", start),
    )
    return replace(settings, arrivals_s=span_s(settings)) if start == "empty" else settings


def open_model(path: Path, tracking_uri: str) -> "Provisioner":
    """The model in the file, or at this address of MLflow. ValueError if it is none."""
    from laxity_lab.policy_training.registry_commands import tracking_store
    from laxity_profiler.registry.mlflow_errors import MlflowAwayError
    from laxity_profiler.registry.registered_files import fetch_file
    from laxity_scheduler.chains.model_file import MOST_BYTES, load_provisioner, read_provisioner

    address = str(path)
    if not address.startswith("models:/"):
        return load_provisioner(path)
    try:
        body = fetch_file(tracking_store(tracking_uri), address, most_bytes=MOST_BYTES)
    except MlflowAwayError as error:
        raise CommandError(str(error), code=AWAY) from error
    return read_provisioner(body, address)


def methods_of(
    models: "Mapping[Path, Provisioner]", prices: str, settings: "PairSettings"
) -> "dict[str, LearnedMethod]":
    """A method per model. ValueError if one was trained for another pair."""
    from laxity_lab.batch_queue.learned_method import LearnedMethod
    from laxity_scheduler.chains.prices import Prices

    chosen = Prices.parse(prices)
    learned: dict[str, LearnedMethod] = {}
    for path, provisioner in models.items():
        provisioner.check_pair(settings.nodes, settings.limit_s, str(path))
        if provisioner.kind in learned:
            raise ValueError(f"{path}: there is a {provisioner.kind} model already")
        learned[provisioner.kind] = LearnedMethod(provisioner, chosen)
    return learned


def check_methods(
    names: list[str] | None, learned: "Mapping[str, LearnedMethod]"
) -> tuple[str, ...]:
    """The methods that are wanted, all without a name."""
    methods = (*METHODS_WITHOUT_MODEL, *learned)
    for name in names or ():
        if name in MODELS and name not in methods:
            raise ValueError(f"--method {name} needs --model, a file of `laxity train provisioner`")
        check_choice(name, METHODS_WITHOUT_MODEL + MODELS, "unknown method")
    return tuple(dict.fromkeys(names or methods))


def decision_figures(learned: "Mapping[str, LearnedMethod]") -> "dict[str, IntervalMetric]":
    """How long one decision of each learned method took, the median."""
    from statistics import median

    from laxity_lab.batch_queue.intervals import interval_figure

    return {
        f"{name}_decision_ms": interval_figure(1_000 * median(method.decision_s), "ms")
        for name, method in learned.items()
        if method.decision_s
    }


def say_log(log: "QueueLog", settings: "PairSettings") -> None:
    """On stderr: lines that were set aside, and jobs that the cluster cannot hold."""
    from laxity.human_time import count_noun

    if log.bad_lines:
        first = "; ".join(str(line) for line in log.bad_lines[:SHOWN_BAD_LINES])
        typer.echo(f"{count_noun(len(log.bad_lines), 'line')} set aside: {first}", err=True)
    if log.assumed_limits:
        jobs = count_noun(log.assumed_limits, "job")
        typer.echo(f"{jobs} without a time limit: the run time counts as one", err=True)
    if log.assumed_zone:
        advice = "SLURM_TIME_FORMAT=%s sacct writes seconds, which are right in any"
        typer.echo(f"times without a zone are read as UTC: {advice}", err=True)
    large = int((log.columns.nodes > settings.cluster_nodes).sum())
    if large:
        text = f"{count_noun(large, 'job')} larger than {settings.cluster_nodes} nodes left out"
        typer.echo(text, err=True)


def show(figures: "Mapping[str, Mapping[str, IntervalMetric]]", *, as_json: bool) -> None:
    """One JSON object by method and `run`, or a line per figure."""
    if as_json:
        typer.echo(json.dumps(figures))
        return
    for name, group in figures.items():
        typer.echo(name)
        for figure, value in group.items():
            text = number_text(value["value"])
            typer.echo(f"  {figure:<24} {text:>10} {value['unit']}{beside(value)}")


def beside(figure: "IntervalMetric") -> str:
    """The interval and the baseline, where there are any."""
    low, high, baseline = figure["low"], figure["high"], figure["baseline"]
    interval = (
        "" if low is None or high is None else f"  [{number_text(low)} .. {number_text(high)}]"
    )
    return interval + ("" if baseline is None else f"  baseline {number_text(baseline)}")


def number_text(value: float) -> str:
    """With two decimals, or two digits where that would leave nothing: seconds are parts of hours."""
    return f"{value:,.2f}" if value == 0 or abs(value) >= SMALL else f"{value:.2g}"
