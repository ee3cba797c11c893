"""`laxity run`: a script as it is, under a deadline."""

from typing import TYPE_CHECKING, Final

import typer

from laxity import names
from laxity.cli.commands_jobs import read_timeout_s, submit_jobs
from laxity.cli.exit_codes import USAGE, CommandError
from laxity.cli.job_options import (
    AsJson,
    Command,
    Deadline,
    FollowToEnd,
    Fresh,
    Grace,
    Image,
    Key,
    Launcher,
    Model,
    Name,
    Namespace,
    PassEnv,
    Restarts,
    ResumeArgs,
    Resumes,
    RunEstimate,
    ServiceClass,
    Timeout,
    WallLimit,
    Workers,
)

if TYPE_CHECKING:
    from laxity.api.client import Client
    from laxity.flow.script import Script

NO_PROGRESS: Final = "no progress was reported: the next run is predicted by its run time"


def run(
    command: Command,
    *,
    deadline: Deadline = None,
    service_class: ServiceClass = None,
    workers: Workers = None,
    model: Model = None,
    estimate: RunEstimate = None,
    resumes: Resumes = False,
    resume_args: ResumeArgs = None,
    grace: Grace = 30,
    wall_limit: WallLimit = None,
    launcher: Launcher = None,
    restarts: Restarts = None,
    name: Name = None,
    namespace: Namespace = None,
    image: Image = None,
    pass_env: PassEnv = None,
    key: Key = None,
    fresh: Fresh = False,
    follow: FollowToEnd = True,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Run a script under a deadline, unchanged.

    laxity run --deadline 6h --name sft -- python train.py --output_dir out

    laxity run --deadline 2h --resume-args "--resume_from_checkpoint out" -- python train.py

    The Trainer of Transformers reports its progress by itself; any other script can with one line of
    curl. A script that reports none is predicted by its run time. See docs/scripts.md.
    """
    from laxity.api.client import Client
    from laxity.cli.job_source import option_annotations, script_manifest

    timeout_s, client = read_timeout_s(timeout, follow=follow), Client(patience_s=5.0)
    if image is None:
        _check_program(command[0])
    script = _script_of(command, resume_args, resumes=resumes, grace_s=grace)
    epochs = _planned_epochs(client, script, model or name, namespace)
    annotations = option_annotations(
        deadline, service_class, workers, epochs, model, estimate, wall_limit, launcher, restarts
    ) | {names.IDEMPOTENCY_KEY: key, names.FRESH: "true" if fresh else None}
    manifest = script_manifest(
        script, annotations,
        name=name, namespace=namespace, image=image, pass_env=tuple(pass_env or ()) or None,
    )  # fmt: skip
    (job,), code = submit_jobs(
        client, [manifest], timeout_s=timeout_s, follow=follow, as_json=as_json
    )
    if epochs is None and job.is_silent:
        typer.echo(f"{job.id}: {NO_PROGRESS}", err=True)
    raise typer.Exit(code)


def _check_program(program: str) -> None:
    """A job on this machine has this PATH and folder: what is not found here is not found there."""
    import shutil

    if shutil.which(program) is None:
        shell, python = (
            "; a shell's line runs by: -- bash -c 'LINE'",
            f"; write: -- python {program}",
        )
        hint = shell if " " in program else python if program.endswith(".py") else ""
        message = f"{program!r} is no program on PATH nor an executable file{hint}"
        raise CommandError(message, code=USAGE)


def _script_of(
    command: list[str], resume_args: str | None, *, resumes: bool, grace_s: int
) -> "Script":
    import shlex

    from laxity.flow.script import Script

    try:
        extra = shlex.split(resume_args or "")
    except ValueError as error:
        raise CommandError(f"--resume-args {resume_args}: {error}", code=USAGE) from error
    return Script(command, resumes or bool(extra), extra, grace_s)


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
    return 1 if latest is not None and latest.is_silent else None
