"""`laxity bench learned`: the learned policy against DRF, SRTF and Optimus."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from laxity.cli.exit_codes import USAGE, CommandError
from laxity_lab.policy_training.train_policy_command import JsonOption, read_tables

TablesOption = Annotated[
    Path,
    typer.Option(
        help="Folder of throughput tables, MODEL.csv; also looked for under $LAXITY_TRACES."
    ),
]
TraceOption = Annotated[
    Path | None, typer.Option(help="A trace of elastic jobs instead of generated ones.")
]
WeightsOption = Annotated[
    Path | None, typer.Option(help="A file of `laxity train policy`. [the one that ships]")
]
LoadOption = Annotated[float, typer.Option(min=0.01, help="GPUs asked for / GPUs, generated.")]
JobsOption = Annotated[int, typer.Option(min=2, help="Generated jobs per seed.")]
NodesOption = Annotated[int, typer.Option(min=1, help="Nodes of 8 GPUs.")]
SeedOption = Annotated[int, typer.Option(min=0, help="First seed.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="So many seeds.")]


def learned(
    *,
    tables: TablesOption = Path("elasticflow/throughputs_T4"),
    trace: TraceOption = None,
    weights: WeightsOption = None,
    load: LoadOption = 0.8,
    jobs: JobsOption = 60,
    nodes: NodesOption = 4,
    seed: SeedOption = 1_000,
    seeds: SeedsOption = 10,
    json_: JsonOption = False,
) -> None:
    """Mean completion times under the learned policy, relative to others on the same jobs."""
    from laxity_lab.policy_training import policy_bench
    from laxity_lab.policy_training.made_jobs import ArrivalMix

    measured_tables, name = read_tables(tables), "learned"
    try:
        if weights is not None:
            check_weights(weights)
            name = f"learned:{weights}"
        if trace is None:
            mix = ArrivalMix(jobs, nodes * policy_bench.GPUS_PER_NODE, load)
            traces = policy_bench.make_traces(measured_tables, mix, range(seed, seed + seeds))
        else:
            traces = [read_trace(trace, tables)]
        runs = len(traces) * (1 + len(policy_bench.RIVALS))
        with typer.progressbar(length=runs, label=f"{runs} runs", file=sys.stderr) as bar:
            figures = policy_bench.compare_policies(traces, nodes, name, tell=bar.update)
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from error
    show(
        {**figures, "decision_ms": policy_bench.time_decision(measured_tables, name)}, as_json=json_
    )


def check_weights(path: Path) -> None:
    """ValueError if the file is refused: the teacher must not be measured in its place."""
    from laxity_scheduler.learned.weights_file import load_policy

    load_policy(path)


def read_trace(path: Path, tables: Path) -> Any:
    """ValueError if there is none, or none with jobs."""
    from laxity_lab.traces.cases import Source
    from laxity_lab.traces.trace_lookup import format_of, resolve, trace_at

    file = trace_at(path)
    return Source(file, format_of(file, ""), resolve(tables)).load()


def show(figures: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(figures))
        return
    for name, figure in figures.items():
        bounds = ""
        if figure["low"] is not None:
            bounds = f"  [{figure['low']:.3f}, {figure['high']:.3f}]"
        baseline = "" if figure["baseline"] is None else f"  baseline {figure['baseline']:,.1f}"
        typer.echo(f"{name:<16} {figure['value']:>10,.3f} {figure['unit']}{bounds}{baseline}")
