"""The command that makes a Prefect work pool out of nothing but its template."""

import json

import typer


def workpool() -> None:
    """Print the base job template of a Prefect Kubernetes work pool with deadlines."""
    from laxity.job.work_pool import pool_template

    typer.echo(json.dumps(pool_template(), indent=2))
