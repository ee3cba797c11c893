"""`python -m benchmarks acting`: its options. Nothing heavy is imported before it runs."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.results import show
from laxity.cli.exit_codes import FAILED, CommandError


def bench_acting(
    *,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Of the cluster to use. [KUBECONFIG, then ~/.kube/config]"),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context in the kubeconfig.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Waiting one-GPU Jobs of each round.")] = 1000,
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds; the bare loop and laxity take turns in each.")
    ] = 2,
    in_flight: Annotated[int, typer.Option(min=1, help="Patches in flight, of both.")] = 32,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Admissions per second on a cluster, beside a bare patch loop; it is left as it was."""
    from benchmarks.acting import BenchCluster, BenchError, measure_acting
    from laxity_k8s.cluster_api import ApiError

    def say(words: str) -> None:
        typer.echo(words, err=True)

    try:
        with BenchCluster.open_cluster(
            kubeconfig, context=context, in_flight=in_flight
        ) as bench_cluster:
            figures = measure_acting(bench_cluster, jobs=jobs, rounds=rounds, say=say)
    except (ApiError, BenchError) as error:
        raise CommandError(str(error), code=FAILED) from error
    show(figures, as_json=json_, beside="the bare loop")
