"""Commands that look: ls, top, ui, show, logs, cluster."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from laxity.cli.exit_codes import FAILED, OK
from laxity.cli.job_names import with_job, with_job_or_group
from laxity.cli.job_options import AsJson, JobId

if TYPE_CHECKING:
    from laxity.api.client import Client

POLL_S: Final = 1.0
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Only jobs of this namespace.")
]


def ls(
    *,
    namespace: Namespace = None,
    ended: Annotated[
        bool,
        typer.Option(
            "--all", "-a", help="Ended jobs too, and refused ones whose offers have expired."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the jobs: verdict, deadline, laxity, width, reason. Running ones come first."""
    from laxity.api.client import Client
    from laxity.cli.render.job_panel import print_json
    from laxity.cli.render.job_table import console, job_table
    from laxity.cli.render.top import in_order

    jobs, now = Client(patience_s=0).jobs(namespace), time.time()
    if not ended:
        jobs = [job for job in jobs if not job.ended and not job.has_lapsed(now)]
    if as_json:
        print_json({"jobs": [job.raw for job in jobs]})
    elif jobs:
        console().print(job_table(in_order(jobs, now), now=now))
    else:
        typer.echo("no jobs" if ended else "no jobs that have not ended (--all shows those too)")


def top(
    *,
    namespace: Namespace = None,
    every: Annotated[float, typer.Option(help="Seconds between looks.", min=0.2)] = POLL_S,
) -> None:
    """Watch the cluster and its jobs; q quits. Into a pipe it prints once."""
    from rich.live import Live

    from laxity.api.client import Client
    from laxity.cli.render.job_table import console
    from laxity.cli.render.top import render_cluster, render_overview
    from laxity.cli.terminal_keys import reading_keys

    client, out = Client(patience_s=0), console()
    first = render_cluster(client, namespace)  # a service that is away later may come back
    if not out.is_terminal:
        out.print(first)
        return
    with (
        reading_keys() as read_key,
        Live(first, console=out, screen=True, auto_refresh=False) as live,
    ):
        live.refresh()
        while read_key(every) not in {"q", "Q"}:
            live.update(render_overview(client, namespace), refresh=True)


def ui() -> None:
    """Open the service's page in the browser, signed in."""
    import webbrowser

    from laxity.api.client import Client

    address = Client(patience_s=0).page_address()
    if webbrowser.open(address):
        typer.echo(f"page: {address.partition('#')[0]}")
    else:
        typer.echo(f"no browser opens here; within a minute, open {address}")


def show(job: JobId, *, as_json: AsJson = False) -> None:
    """Show one job: verdict, expected finish, widths, offers. Or a group, with its jobs."""
    from laxity.api.client import Client
    from laxity.cli.render.group_panel import print_group
    from laxity.cli.render.job_panel import print_job

    client = Client(patience_s=0)
    with_job_or_group(
        client,
        job,
        lambda name: print_job(client.job(name), as_json=as_json),
        lambda name: print_group(client.group(name), as_json=as_json),
    )


def logs(
    job: JobId,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends.")
    ] = False,
    index: Annotated[int, typer.Option(help="Which worker; 0 is the leader.", min=0)] = 0,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", min=0)] = None,
) -> None:
    """Print what a worker has written."""
    from laxity.api.client import Client
    from laxity.api.log_text import text_after

    client = Client(patience_s=0)
    job, written = with_job(
        client, job, lambda name: (name, client.logs(name, index=index, tail=tail))
    )
    sys.stdout.write(written)
    if not written and tail != 0:
        typer.echo(f"worker {index} of {job} has written nothing{_error_of(job, client)}", err=True)
    if not follow:
        return
    _, printed = text_after(client.logs(job, index=index) if tail is not None else written, 0)
    while True:
        ended = client.job(job).ended
        text, printed = text_after(client.logs(job, index=index), printed)
        sys.stdout.write(text)
        sys.stdout.flush()
        if ended:
            raise typer.Exit(OK if client.job(job).state == "finished" else FAILED)
        time.sleep(POLL_S)


def _error_of(job: str, client: "Client") -> str:
    """What the job says it failed of, for those who look in the wrong worker's log."""
    from laxity.api.client import ServiceError

    try:
        error = client.job(job).error
    except ServiceError:
        return ""
    return f"; the job says: {error}" if error else ""


def cluster(*, as_json: AsJson = False) -> None:
    """Show nodes, free GPUs, and what became of the promises."""
    from laxity.api.client import Client
    from laxity.cli.render.job_panel import print_json
    from laxity.cli.render.job_table import console
    from laxity.cli.render.top import (
        cluster_line,
        forecast_line,
        node_table,
        policy_lines,
        promise_line,
    )

    answer = Client(patience_s=0).cluster()
    if as_json:
        print_json(answer)
        return
    out = console()
    out.print(cluster_line(answer))
    for line in policy_lines(answer):
        out.print(line)
    if promises := promise_line(answer):
        out.print(promises)
    if forecast := forecast_line(answer):
        out.print(forecast)
    out.print(node_table(answer))
