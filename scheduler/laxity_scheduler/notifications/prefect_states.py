"""The state that a flow run should have while its job has no pod, and the lines of its log."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from laxity.api.job_view import JobView, job_view
from laxity.api.status_text import (
    DeadlineRefused,
    TrainingCancelled,
    TrainingFailed,
    instant_text,
    stalled_text,
    standing_text,
)
from laxity.instants import format_instant
from laxity_scheduler.service.views.view_fields import Json

REFUSAL_PREFIX: Final = "DeadlineRefused: "  # of the message of a run that the service ended
WAITING_NAMES: Final = {"promised": "Promised", "forecast": "Waiting"}
TERMINAL_STATES: Final = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
WARNING_EVENTS: Final = frozenset(
    {"refused", "promise_in_danger", "promise_broken", "stalled", "ended_failed"}
)
MAX_MESSAGE_LENGTH: Final = 4_000


@dataclass(frozen=True, slots=True)
class RunState:
    """The state that a flow run should have: Prefect's type, the name people see, the reason."""

    kind: str
    name: str
    message: str

    def may_replace(self, kind: str, message: str) -> bool:
        """Whether it may replace this state: what the run's pod has set comes first."""
        if self.kind == "FAILED":
            return kind in {"SCHEDULED", "PENDING"}
        if self.kind == "PENDING":
            return kind == "PENDING" or (kind == "FAILED" and message.startswith(REFUSAL_PREFIX))
        return kind not in TERMINAL_STATES


def state_wanted_for(view: Json) -> RunState | None:
    """The state that the flow run of this job should have; None where its pod sets it."""
    job = job_view(view)
    if job.state == "refused":
        return _run_state("FAILED", "Refused", f"{REFUSAL_PREFIX}{DeadlineRefused(job)}")
    if job.state == "cancelled" and not view.get("released"):
        return _run_state("CANCELLED", "Cancelled", str(TrainingCancelled(job)))
    if job.state == "failed":
        return _run_state("CRASHED", "Crashed", str(TrainingFailed(job)))
    if job.state in {"queued", "running"} and job.verdict in WAITING_NAMES:
        return _run_state("PENDING", WAITING_NAMES[job.verdict], _waiting_text(job))
    return None


def _run_state(kind: str, name: str, message: str) -> RunState:
    return RunState(kind, name, message[:MAX_MESSAGE_LENGTH])


def _waiting_text(job: JobView) -> str:
    """The verdict, why the job waits, and until when as far as that is known."""
    if job.state == "running":
        return f"{job.id}: {job.verdict}: its pods start"
    return f"{job.id}: {job.verdict}: {_figures_text(job)}"


def _figures_text(job: JobView) -> str:
    instants = {
        "promised for": job.deadline_at if job.verdict == "promised" else None,
        "P90 finish": job.p90_at,
        "expected start": job.expected_start_at,
    }
    figures = [
        f"{label} {instant_text(since_epoch_s)}"
        for label, since_epoch_s in instants.items()
        if since_epoch_s is not None
    ]
    return "; ".join([job.reason, *figures])


def log_lines(run_id: str, events: Iterable[str], view: Mapping[str, Any]) -> Iterable[Json]:
    job = job_view(view)
    for event in events:
        if event == "ended_refused":
            continue  # said with the refusal
        text = _event_text(event, job)
        yield {
            "name": "laxity",
            "level": logging.WARNING if event in WARNING_EVENTS else logging.INFO,
            "message": f"{event}: {text}"[:MAX_MESSAGE_LENGTH],
            "timestamp": format_instant(datetime.now(UTC)),
            "flow_run_id": run_id,
        }


def _event_text(event: str, job: JobView) -> str:
    """What the run's log says about an event: figures, and after the end how it ended."""
    if event == "refused":
        return str(DeadlineRefused(job))
    if job.state == "cancelled":
        return str(TrainingCancelled(job))
    if job.state == "failed":
        return str(TrainingFailed(job))
    if job.state == "finished":
        return f"{job.id}: {standing_text(job)}"
    if event == "stalled":
        return f"{job.id}: {stalled_text(job, time.time())}"
    return f"{job.id}: {_figures_text(job)}"
