"""What GitHub Actions shows of a job: a summary, outputs for later steps, and annotations.

GitHub sets GITHUB_ACTIONS and names two files; a command appends to them. Elsewhere nothing happens.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from laxity.api.job_view import JobView, Json
from laxity.api.status_text import (
    BROKEN,
    DeadlineRefused,
    GroupRefused,
    TrainingFailed,
    deadline_status,
    instant_text,
    standing_text,
    verdict_markdown,
)

ACTIVE: Final = "GITHUB_ACTIONS"
SUMMARY_FILE: Final = "GITHUB_STEP_SUMMARY"
OUTPUT_FILE: Final = "GITHUB_OUTPUT"


def is_active() -> bool:
    return os.environ.get(ACTIVE) == "true"


def report_job(job: JobView) -> None:
    """Tell GitHub where a job stands, if this is a step of its Actions."""
    if not is_active():
        return
    _write_files(verdict_markdown(job), _step_outputs(job))
    if problem := _job_problem(job):
        print_annotation("error", problem, title=f"laxity: {job.id}")
    elif deadline_status(job) == "late":
        print_annotation("warning", standing_text(job), title=f"laxity: {job.id}")


def report_group(group: Json) -> None:
    """Tell GitHub the verdict on several Jobs with one deadline."""
    if not is_active():
        return
    name, verdict = str(group["id"]), str(group["verdict"])
    outputs = {
        "job": name,
        "state": str(group["state"]),
        "verdict": verdict,
        "standing": verdict,
        "reason-code": str(group["reason_code"]),
        "deadline": instant_text(group["deadline_at"]),
        "p90-finish": instant_text(group["p90_at"]),
    }
    offers = "".join(f"- {offer['text']}\n" for offer in group["offers"])
    _write_files(f"# {name}: {verdict}\n\n{group['reason']}\n\n{offers}", outputs)
    if verdict == "refused":
        print_annotation("error", str(GroupRefused(group)), title=f"laxity: {name}")


def _write_files(summary: str, outputs: Mapping[str, str]) -> None:
    _append_text(SUMMARY_FILE, f"{summary}\n\n")
    lines = (f"{key}={_join_lines(value)}\n" for key, value in outputs.items())
    _append_text(OUTPUT_FILE, "".join(lines))


def print_annotation(level: str, message: str, *, title: str = "laxity") -> None:
    """Print a workflow command: GitHub shows it on the run's page. On stderr: stdout may be JSON."""
    name = escape_message(title).replace(":", "%3A").replace(",", "%2C")
    print(f"::{level} title={name}::{escape_message(message)}", file=sys.stderr, flush=True)  # noqa: T201


def _job_problem(job: JobView) -> str:
    """What is wrong with a job, for the annotation; empty if nothing is."""
    if job.state == "refused":
        return str(DeadlineRefused(job))
    if job.state == "failed":
        return str(TrainingFailed(job))
    if job.state == "cancelled":
        return f"{job.id} was cancelled after {job.epochs_done} of {job.epochs} epochs"
    return standing_text(job) if deadline_status(job) == BROKEN else ""


def _step_outputs(job: JobView) -> Mapping[str, str]:
    """Outputs of the step, by name; docs/ci.md lists them."""
    return {
        "job": job.id,
        "state": job.state,
        "verdict": job.verdict,
        "standing": deadline_status(job),
        "reason-code": job.reason_code,
        "deadline": instant_text(job.deadline_at),
        "p90-finish": instant_text(job.p90_at),
        "finished": instant_text(job.finished_at),
        "mlflow-run": job.run_id,
        "mlflow-url": job.run_url,
    }


def _append_text(variable: str, text: str) -> None:
    """Append to a file of the step. One that cannot be written costs a warning, no exit code."""
    path = os.environ.get(variable)
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        words = f"{path} cannot be written: {error.strerror}; the step goes on without it"
        print_annotation("warning", f"{variable}: {words}")


def _join_lines(value: str) -> str:
    """A value on one line: a line break would begin another output."""
    return " ".join(value.splitlines())


def escape_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
