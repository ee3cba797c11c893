"""`laxity run`: a script as it is, under a deadline."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from laxity import names
from laxity.cli.commands_jobs import read_timeout_s, submit_jobs
from laxity.cli.exit_codes import USAGE, CommandError
from laxity.cli.job_options import (
    AsJson,
    Deadline,
    Fresh,
    Key,
    Launcher,
    Model,
    Name,
    Namespace,
    PassEnv,
    Restarts,
    ServiceClass,
    Timeout,
    WallLimit,
    Workers,
)

if TYPE_CHECKING:
    from laxity.api.client import Client, JobView
    from laxity.flow.script import Script

NO_PROGRESS: Final = "no progress was reported: the next run is predicted by its run time"


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="The script, with its arguments.")
    ],
    *,
    deadline: Deadline = None,
    service_class: ServiceClass = None,
    workers: Workers = None,
    model: Model = None,
    estimate: Annotated[
        str | None, typer.Option(help="The whole script takes so long on one worker: 2h.")
    ] = None,
    resumes: Annotated[
        bool,
        typer.Option("--resumes", help="After a stop the script goes on from its own checkpoint."),
    ] = False,
    resume_args: Annotated[
        str | None,
        typer.Option(help="Arguments that a start after a stop gets too. Implies --resumes."),
    ] = None,
    grace: Annotated[
        int, typer.Option(help="Seconds that the script has after SIGTERM.", min=1)
    ] = 30,
    wall_limit: WallLimit = None,
    launcher: Launcher = None,
    restarts: Restarts = None,
    name: Name = None,
    namespace: Namespace = None,
    image: Annotated[
        str | None, typer.Option(help="On a cluster: the image that holds the script and laxity.")
    ] = None,
    pass_env: PassEnv = None,
    key: Key = None,
    fresh: Fresh = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Follow the job to its end.")
    ] = True,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Run a script under a deadline, unchanged.

    laxity run --deadline 6h --name sft -- python train.py --output_dir out

    laxity run --deadline 2h --resume-args "--resume_from_checkpoint out" -- python train.py

    The Trainer of Transformers reports its progress by itself; any other script can with one line of
    curl. A script that reports none is predicted by its run time. See docs/scripts.md.
    """
    import shlex

    from laxity.api.client import Client
    from laxity.cli.job_source import option_annotations, script_manifest
    from laxity.flow.script import Script

    timeout_s = read_timeout_s(timeout, follow=follow)
    try:
        extra = shlex.split(resume_args or "")
    except ValueError as error:
        raise CommandError(f"--resume-args {resume_args}: {error}", code=USAGE) from error
    script = Script(command, resumes or bool(extra), extra, grace)
    client = Client(patience_s=5.0)
    epochs = _planned_epochs(client, script, model or name, namespace)
    annotations = option_annotations(
        deadline, service_class, workers, epochs, model, estimate, wall_limit, launcher, restarts
    ) | {names.IDEMPOTENCY_KEY: key, names.FRESH: "true" if fresh else None}
    options = {"namespace": namespace, "image": image, "pass_env": tuple(pass_env or ())}
    manifest = script_manifest(
        script,
        annotations,
        name=name,
        **{option: value for option, value in options.items() if value},
    )
    (job,), code = submit_jobs(
        client, [manifest], timeout_s=timeout_s, follow=follow, as_json=as_json
    )
    if epochs is None and _is_silent(job):
        typer.echo(f"{job.id}: {NO_PROGRESS}", err=True)
    raise typer.Exit(code)


def _planned_epochs(
    client: "Client", script: "Script", model: str | None, namespace: str | None
) -> int | None:
    """1 for a script whose latest finished run has posted no progress; else None, for per cents."""
    wanted = (f"{namespace or 'default'}/", model or script.title)
    runs = [
        job
        for job in client.jobs(namespace)
        if job.state == "finished" and job.id.startswith(wanted[0]) and job.model == wanted[1]
    ]
    latest = max(runs, key=lambda job: job.finished_at or 0.0, default=None)
    return 1 if latest is not None and _is_silent(latest) else None


def _is_silent(job: "JobView") -> bool:
    """Whether its script has finished, and posted no progress."""
    from laxity.worker.script import PROGRESS

    return isinstance(job.result, dict) and job.result.get(PROGRESS, 0) is None
