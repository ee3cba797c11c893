"""Commands that ask why and what if: explain, whatif, decisions."""

import time
from typing import Annotated

import typer

from laxity.cli.exit_codes import OK, REFUSED
from laxity.cli.job_names import beginning_with, complete_job, with_job
from laxity.cli.job_options import (
    AsJson,
    Deadline,
    Epochs,
    Estimate,
    JobId,
    Model,
    Name,
    Namespace,
    Params,
    ServiceClass,
    Source,
    WallLimit,
    Workers,
)


def explain(job: JobId, *, as_json: AsJson = False) -> None:
    """Say why a job is where it is, decision by decision."""
    from laxity.api.client import Client
    from laxity.cli.render.decisions import chain_lines
    from laxity.cli.render.job_panel import print_json
    from laxity.cli.render.job_table import console

    client = Client(patience_s=0)
    answer = with_job(client, job, client.explain)
    if as_json:
        print_json(answer)
    else:
        console().print(chain_lines(answer, now=time.time()))


def whatif(
    source: Source,
    *,
    deadline: Deadline = None,
    service_class: ServiceClass = None,
    workers: Workers = None,
    epochs: Epochs = None,
    model: Model = None,
    estimate: Estimate = None,
    wall_limit: WallLimit = None,
    name: Name = None,
    namespace: Namespace = None,
    param: Params = None,
    as_json: AsJson = False,
) -> None:
    """Say what verdict a job or a group would get; nothing is submitted.

    A file of Jobs that wait for one another, with laxity.dev/after, is a group.
    """
    from laxity.api.client import Client
    from laxity.cli.group_files import group_document, is_group
    from laxity.cli.job_source import job_manifests, option_annotations
    from laxity.cli.render.group_panel import print_group
    from laxity.cli.render.job_panel import print_json, whatif_lines
    from laxity.cli.render.job_table import console

    annotations = option_annotations(
        deadline, service_class, workers, epochs, model, estimate, wall_limit
    )
    client, code = Client(patience_s=0), OK
    manifests = job_manifests(
        source, annotations, name=name, namespace=namespace, params=param or []
    )
    if is_group(manifests):
        answer = client.whatif_group(group_document(manifests, source, None))
        raise typer.Exit(print_group(answer, as_json=as_json))
    for manifest in manifests:
        answer = client.whatif(manifest)
        if as_json:
            print_json(answer)
        else:
            console().print(whatif_lines(answer, now=time.time()))
        code = max(code, REFUSED if answer.get("verdict") == "refused" else OK)
    raise typer.Exit(code)


def decisions(
    *,
    job: Annotated[
        str | None, typer.Option(help="Only of this job.", autocompletion=complete_job)
    ] = None,
    limit: Annotated[int, typer.Option(help="How many, the latest.", min=1)] = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest decisions with their reasons."""
    from laxity.api.client import Client
    from laxity.cli.render.decisions import decision_table
    from laxity.cli.render.job_panel import print_json
    from laxity.cli.render.job_table import console

    client = Client(patience_s=0)
    rows = client.decisions(job, limit=limit)
    if job and not rows and len(alike := beginning_with(client, job)) == 1:
        rows = client.decisions(alike[0], limit=limit)
    if as_json:
        print_json({"decisions": rows})
    elif not rows:
        typer.echo(f"no decisions of {job} are kept" if job else "nothing was decided yet")
    else:
        console().print(decision_table(rows, now=time.time()))


def mcp() -> None:
    """Let an agent submit jobs and ask about them, by MCP over stdio.

    It has the rights of your token. Your agent's configuration starts it: see docs/agents.md.
    """
    from laxity.cli.mcp_tools import make_server

    make_server().run("stdio")
