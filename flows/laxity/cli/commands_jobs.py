"""Commands that change jobs: submit, accept, amend, cancel, release."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from laxity import names
from laxity.api.job_view import ENDED, TERMINAL_STATES, Json
from laxity.cli.exit_codes import (
    BROKEN,
    FAILED,
    OK,
    REFUSED,
    UNFINISHED,
    USAGE,
    CommandError,
    interrupt_on_sigterm,
)
from laxity.cli.job_names import complete_job, with_job, with_job_or_group
from laxity.cli.job_options import (
    JOB_HELP,
    AsJson,
    Deadline,
    Epochs,
    Estimate,
    Follow,
    Freeze,
    Fresh,
    JobId,
    Key,
    Launcher,
    Model,
    Name,
    Namespace,
    Params,
    PassEnv,
    Restarts,
    ServiceClass,
    Source,
    Timeout,
    WallLimit,
    Workers,
)

if TYPE_CHECKING:
    from laxity.api.client import Client, JobView

VERDICT_WAIT_S: Final = 10.0
LAST_LINES: Final = 15


def submit(
    source: Source,
    *,
    deadline: Deadline = None,
    service_class: ServiceClass = None,
    workers: Workers = None,
    epochs: Epochs = None,
    model: Model = None,
    estimate: Estimate = None,
    wall_limit: WallLimit = None,
    launcher: Launcher = None,
    restarts: Restarts = None,
    name: Name = None,
    namespace: Namespace = None,
    param: Params = None,
    pass_env: PassEnv = None,
    key: Key = None,
    fresh: Fresh = False,
    freeze: Freeze = False,
    follow: Follow = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Submit a training job and show its verdict.

    Promised, refused with counter-offers, or a forecast. FILE is YAML or JSON of one or more
    batch/v1 Jobs; ENTRY is a training function: train.py:fn or package.module:fn. Jobs with
    laxity.dev/after wait for one another, and have one deadline together.
    """
    from laxity.api.client import Client
    from laxity.cli.github import report_group
    from laxity.cli.group_files import is_group, submit_group
    from laxity.cli.job_source import job_manifests, option_annotations
    from laxity.cli.render.group_panel import print_group

    timeout_s = read_timeout_s(timeout, follow=follow)
    annotations = option_annotations(
        deadline, service_class, workers, epochs, model, estimate, wall_limit, launcher, restarts
    ) | {names.IDEMPOTENCY_KEY: key}
    annotations |= {
        names.FRESH: "true" if fresh else None,
        names.FREEZE: "true" if freeze else None,
    }
    client = Client(patience_s=5.0)
    manifests = job_manifests(
        source, annotations,
        name=name, namespace=namespace, params=param or [], pass_env=pass_env or (),
    )  # fmt: skip
    answers: list[JobView] | None = None
    if is_group(manifests):
        group, answers = submit_group(client, manifests, source, key)
        report_group(group)
        if group["state"] == "refused" or not follow:
            raise typer.Exit(print_group(group, as_json=as_json))
    _, code = submit_jobs(
        client, manifests, answers, timeout_s=timeout_s, follow=follow, as_json=as_json
    )
    raise typer.Exit(code)


def submit_jobs(
    client: "Client",
    manifests: Sequence[Json],
    answers: Sequence["JobView"] | None = None,
    *,
    timeout_s: float,
    follow: bool,
    as_json: bool,
) -> tuple[list["JobView"], int]:
    """Submit these Jobs unless that has its `answers` already, and show each verdict or follow each; them, and the exit code."""
    from laxity.cli.github import report_job
    from laxity.cli.render.job_panel import print_job

    answers = answers or [client.submit(manifest) for manifest in manifests]  # all, then follow
    for manifest, answer in zip(manifests, answers, strict=True):
        _tell_attachment(manifest, answer)
    verdicts = [await_verdict(client, answer.id) for answer in answers]
    for manifest, verdict in zip(manifests, verdicts, strict=True):
        _tell_doubt(manifest, verdict)
    jobs, until, code = [], time.monotonic() + timeout_s, OK
    for number, verdict in enumerate(verdicts):
        left_s = max(0.0, until - time.monotonic())
        latest = _latest_view(client, verdict) if follow and number else verdict
        job = follow_until(client, latest, left_s) if follow else verdict
        if follow and job.state == "failed":
            _tell_last_lines(client, job)
        print_job(job, as_json=as_json)
        report_job(job)
        jobs.append(job)
        code = max(code, _exit_code(job), OK if _is_settled(job, follow=follow) else UNFINISHED)
    return jobs, code


def _latest_view(client: "Client", job: "JobView") -> "JobView":
    """The job as it is by now; as it was if the service is away, which following waits for."""
    from laxity.api.client import ServiceError

    try:
        return client.job(job.id)
    except ServiceError:
        return job


def _tell_attachment(manifest: Mapping[str, Any], answer: "JobView") -> None:
    """A script must not take the result of an earlier job for that of a training now."""
    from laxity.api.attachment import attachment_text

    if text := attachment_text(answer, manifest, time.time()):
        typer.echo(f"{answer.id}: {text}", err=True)


def _tell_doubt(manifest: Mapping[str, Any], verdict: "JobView") -> None:
    """Warn of a verdict that may rest on the runs of another training."""
    from laxity.api.prediction import history_doubt
    from laxity.durations import parse_duration

    estimate = (manifest["metadata"].get("annotations") or {}).get(names.EPOCH_ESTIMATE)
    estimate_s = parse_duration(estimate).total_seconds() if estimate else None
    if doubt := history_doubt(verdict, estimate_s):
        typer.echo(f"{verdict.id}: {doubt}", err=True)


def _tell_last_lines(client: "Client", job: "JobView") -> None:
    """What its worker wrote last: an exit code alone does not say what failed."""
    from laxity.api.log_text import last_lines

    text, index = last_lines(client, job, LAST_LINES)
    if text:
        which = f" --index {index}" if index else ""
        typer.echo(f"the last lines of laxity logs {job.id}{which}:\n{text}", err=True)


def _is_settled(job: "JobView", *, follow: bool) -> bool:
    """Whether the command could tell what it was to tell: the end, or else the verdict."""
    if follow or job.state in TERMINAL_STATES:
        return job.state in TERMINAL_STATES
    if job.verdict != "none" or job.service_class != "hard" or job.workers:
        return True
    because = f": {job.reason}" if job.reason else ""
    typer.echo(f"{job.id} has no verdict yet{because}; see: laxity show {job.id}", err=True)
    return False


def accept(
    job: JobId,
    offer: Annotated[int, typer.Argument(metavar="N", min=1, help="Number of the offer.")] = 1,
    *,
    as_json: AsJson = False,
) -> None:
    """Take a counter-offer of a refused job: it asks again with it."""
    from laxity.api.client import Client
    from laxity.cli.render.job_panel import print_job

    client = Client(patience_s=5.0)
    view = await_verdict(client, with_job(client, job, lambda name: client.accept(name, offer)).id)
    print_job(view, as_json=as_json)
    raise typer.Exit(_exit_code(view))


def amend(
    job: JobId,
    *,
    deadline: Annotated[
        str, typer.Option(help="The new deadline: 20m from submission, 06:00, or an instant.")
    ],
    as_json: AsJson = False,
) -> None:
    """Ask for another deadline; the old promise stands if refused."""
    from laxity.api.client import Client
    from laxity.cli.job_source import zoned_deadline
    from laxity.cli.render.group_panel import print_group
    from laxity.cli.render.job_panel import print_job

    client, zoned = Client(patience_s=5.0), zoned_deadline(deadline)

    def amend_job(name: str) -> int:
        view = client.amend(name, zoned)
        print_job(view, as_json=as_json)
        return _exit_code(view)

    def amend_group(name: str) -> int:
        return print_group(client.amend_group(name, zoned), as_json=as_json)

    raise typer.Exit(with_job_or_group(client, job, amend_job, amend_group))


def cancel(
    jobs: Annotated[
        list[str], typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=complete_job)
    ],
) -> None:
    """Stop jobs, or all jobs of groups, and give up their promises. On this machine their checkpoints are kept for a week.

    A job that is submitted again with the same key goes on from its last finished epoch.
    """
    from laxity.api.client import Client

    client = Client(patience_s=5.0)
    for job in jobs:
        before = with_job_or_group(client, job, client.cancel, partial(cancel_group, client))
        end = "; its workers are told to stop" if before == "running" else ""
        typer.echo(f"{job}: already {before}" if before in ENDED else f"{job}: cancelled{end}")


def cancel_group(client: "Client", group: str) -> str:
    """Cancel the jobs of a group, and the group; its state before."""
    before = str(client.group(group)["state"])
    client.end_group(group, "cancelled")
    return before


def release(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=complete_job),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Let every job go.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the pin back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Leave a running job alone: still counted and listed, never resized or stopped.

    It is pinned by the annotation laxity.dev/pin; --undo removes that. With --all, every job goes
    on without laxity: its label and annotations are dropped, and it never touches these Jobs again.
    Running jobs run on. Waiting and refused ones stay suspended, and are listed.
    """
    from laxity.cli.render.released import describe_refusals

    if everything == (job is not None):
        raise CommandError("say one JOB, or --all to let every job go", code=USAGE)
    if everything and undo:
        raise CommandError("--all cannot be undone: submit those jobs again", code=USAGE)
    answer, message = release_one_or_all(job, undo=undo)
    typer.echo(json.dumps(answer) if as_json else message)
    if refusals := describe_refusals(answer):
        raise CommandError(refusals, code=FAILED)


def release_one_or_all(job: str | None, *, undo: bool) -> tuple[dict[str, Any], str]:
    """What the service answered, and in words."""
    from laxity.api.client import Client
    from laxity.cli.render.released import all_released

    client = Client(patience_s=5.0)
    if job is None:
        answer = client.release()
        return answer, all_released(answer)
    if undo:
        return with_job(
            client, job, client.take_back
        ), f"{job}: taken back, it is decided about again"
    back = f"laxity release {job} --undo takes that back"
    return with_job(
        client, job, client.release
    ), f"{job}: pinned, it is never resized or stopped; {back}"


def await_verdict(client: "Client", job_id: str) -> "JobView":
    """The job as soon as it has a verdict or an end, or as it is after a few seconds.

    A job without a deadline that runs without a verdict gets none: policies that promise nothing
    give none.
    """
    until = time.monotonic() + VERDICT_WAIT_S
    job = client.job(job_id)
    while job.verdict == "none" and not _has_settled(job) and time.monotonic() < until:
        job = client.job(job_id, wait_s=max(0.1, until - time.monotonic()), seen=job.revision)
    return job


def _has_settled(job: "JobView") -> bool:
    is_held = job.verdict == "none" and bool(job.share_reason)  # until the steps before it are done
    return job.ended or is_held or (job.state == "running" and job.service_class == "best_effort")


def read_timeout_s(text: str | None, *, follow: bool) -> float:
    """Seconds of --timeout; without it there is no end."""
    from laxity.durations import parse_duration

    if text is None:
        return math.inf
    if not follow:
        raise CommandError("--timeout is how long --follow follows: add --follow", code=USAGE)
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise CommandError(f"--timeout {text}: {error}", code=USAGE) from error


@interrupt_on_sigterm()
def follow_until(client: "Client", job: "JobView", timeout_s: float) -> "JobView":
    """The job once it has ended, was refused or the time is over, even if the service is away."""
    from laxity.api.job_follower import FollowTimeoutError, JobFollower
    from laxity.api.status_text import TrainingFailed
    from laxity.cli.render.progress_lines import ProgressLines

    try:
        lines = ProgressLines(partial(typer.echo, err=True))
        return JobFollower(client, lines, timeout_s=timeout_s).follow(job)
    except FollowTimeoutError as error:
        typer.echo(f"stopped following {job.id} at --timeout: it goes on", err=True)
        return error.job
    except TrainingFailed as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        typer.echo(
            f"stopped following {job.id}: it goes on. End it: laxity cancel {job.id}", err=True
        )
        raise


def _exit_code(job: "JobView") -> int:
    if job.state in {"failed", "cancelled"}:
        return FAILED
    if job.broken:
        return BROKEN
    return REFUSED if job.verdict == "refused" else OK
