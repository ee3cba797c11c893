"""What a flow run shows of its job in Prefect: tags, labels, two artifacts, events, log lines.

Notes are a service to readers. A Prefect API that stumbles costs a note, never the following.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
)
from prefect.client.schemas.objects import FlowRun, State
from prefect.events import emit_event
from prefect.exceptions import PrefectException
from prefect.logging import get_run_logger
from prefect.runtime import flow_run as runtime

from laxity.api.attachment import attachment_text
from laxity.api.client import Client, ServiceError, service_address
from laxity.api.job_follower import ASKED_AGAIN, submit_patience_s
from laxity.api.job_view import JobView
from laxity.api.prediction import comparison_text, history_doubt
from laxity.api.status_text import (
    ENDANGERED,
    PROGRESS_KEY,
    VERDICT_KEY,
    artifact_of,
    count_tenths,
    deadline_status,
    instant_text,
    progress_text,
    stalled_text,
    standing_text,
    verdict_markdown,
)
from laxity.human_time import format_seconds
from laxity.job.spec import TrainingSpec

LABEL_JOB: Final = "laxity.job"
_WARN: Final = frozenset({ENDANGERED, "broken", "late", "refused", "failed", "cancelled"})


class NullWatcher:
    """Follows without Prefect: nobody looks, nobody cancels."""

    def on_change(self, job: JobView) -> None:
        pass

    def should_cancel(self) -> bool:
        return False

    def on_unavailable(self, problem: str) -> None:
        logging.getLogger("laxity").warning(problem)


class RunNotes:
    """The notes of one flow run, and the eye on its cancellation."""

    def __init__(
        self, api: SyncPrefectClient, run: FlowRun, spec: TrainingSpec, tags: Iterable[str]
    ) -> None:
        self._api = api
        self._run = run
        self._spec = spec
        self._tags = {*run.tags, *tags, "laxity", f"class:{spec.qos.service_class}"}
        self._watched = _run_ids(run)
        self._log = get_run_logger()
        self._shown: dict[str, Any] = {"stalled": None}
        self._artifacts: dict[str, UUID] = {}
        self._job: JobView | None = None
        self._said_away = False

    def on_change(self, job: JobView) -> None:
        if self._said_away:
            self._log.info("The service answers again.")
        self._said_away = False
        self._job = job
        self._note_identity(job)
        self._note_state(job)
        self._note_standing(job)
        if self._is_news(VERDICT_KEY, verdict_markdown(job)):
            self._write_artifact(VERDICT_KEY, job)
        if self._is_news(PROGRESS_KEY, (job.epochs_done, job.state)):
            self._write_artifact(PROGRESS_KEY, job)

    def should_cancel(self) -> bool:
        """Whether this run, or the outermost one that it is part of, is being cancelled."""
        states: list[State[Any] | None] = []
        with _passing_over(self._log):
            states += (self._api.read_flow_run(run_id).state for run_id in self._watched)
        return any(state and (state.is_cancelling() or state.is_cancelled()) for state in states)

    def on_unavailable(self, problem: str) -> None:
        """Said once: a service that is away for minutes would fill the log."""
        if not self._said_away:
            patience = format_seconds(submit_patience_s(service_address()[0]))
            waits = (
                ASKED_AGAIN
                if self._job
                else f"asked again for {patience}; or train here: LAXITY_ALONE=1"
            )
            self._log.warning("%s (%s)", problem, waits)
        self._said_away = True

    def on_interrupt(self) -> None:
        """The process is told to end. The job goes on, unless this run is being cancelled."""
        job = self._job.id if self._job else self._spec.id
        if not self.should_cancel():
            self._log.warning(
                "Stopped following %s: it goes on. End it: laxity cancel %s", job, job
            )
            return
        with suppress(ServiceError):  # the cancellation hook tries again
            Client(patience_s=5.0).cancel(job)

    def _note_identity(self, job: JobView) -> None:
        """Tags can be filtered by; labels are typed, and the cancellation hook reads them."""
        deadline = instant_text(job.deadline_at)
        tags = self._tags | ({f"deadline:{deadline}"} if deadline else set())
        if self._is_news("tags", tags):
            with _passing_over(self._log):
                self._api.update_flow_run(self._run.id, tags=sorted(tags))
        labels: dict[str, bool | int | float | str] = {
            LABEL_JOB: job.id,
            "laxity.uid": job.uid,
            "laxity.class": job.service_class,
            "laxity.model": job.model,
            "laxity.attempt": job.attempt,
            "laxity.deadline": deadline,
            "laxity.standing": deadline_status(job),
            "laxity.mlflow_run": job.run_id,
            "laxity.group": job.group,
            "laxity.step": job.step,
            "laxity.share": job.share_reason,
        }
        if self._is_news("labels", labels):
            with _passing_over(self._log):
                self._api.update_flow_run_labels(self._run.id, labels)

    def _note_state(self, job: JobView) -> None:
        if job.attached and self._is_news("attached", job.uid):
            text = attachment_text(job, self._spec.to_manifest(), time.time())
            self._log.warning("%s: %s", job.id, text)
        if self._is_news("state", (job.state, job.workers, count_tenths(job))):
            is_news = self._is_news("reason", job.reason) and not job.ended
            reason = f", {job.reason}" if is_news and job.reason else ""
            self._log.info("%s: %s%s", job.id, progress_text(job), reason)
        if self._is_news("run", (job.run_id, job.run_url)) and job.run_id:
            self._log.info("%s: MLflow run %s", job.id, job.run_url or job.run_id)
        if self._is_news("untracked", job.untracked) and job.untracked:
            self._log.warning("%s: not tracked: %s", job.id, job.untracked)
        if job.prediction_note and not job.ended and self._is_news("noted", value=True):
            self._log.info("%s: %s", job.id, job.prediction_note)
        if self._is_news("stalled", job.stalled_since):
            stalled = stalled_text(job, time.time())
            level = logging.WARNING if stalled else logging.INFO
            self._log.log(level, "%s: %s", job.id, stalled or "an epoch has ended again")
        if self._is_news("error", job.error) and job.error:
            self._log.warning("%s: a worker failed: %s", job.id, job.error)

    def _note_standing(self, job: JobView) -> None:
        """One event for each change; the log also tells by how much a broken promise was missed."""
        status = deadline_status(job)
        if status == "none":
            return
        if self._is_news("standing text", (status, job.deadline_at, job.ended)):
            level = logging.WARNING if status in _WARN else logging.INFO
            expected = (
                f"P90 finish {instant_text(job.p90_at)}"
                if job.p90_at is not None and status in {"promised", "forecast"}
                else comparison_text(job)
            )
            text = "; ".join(filter(None, (standing_text(job), expected)))
            self._log.log(level, "%s: %s", job.id, text)
        doubt = history_doubt(job, self._spec.qos.epoch_estimate_s)
        if doubt and self._is_news("doubt", doubt):
            self._log.warning("%s: %s", job.id, doubt)
        if self._is_news("standing", (status, job.deadline_at)):
            with _passing_over(self._log):
                emit_event(
                    f"laxity.job.{status}",
                    resource={
                        "prefect.resource.id": f"laxity.job.{job.id.replace('/', '.')}",
                        "prefect.resource.name": job.id,
                    },
                    payload={key: value for key, value in job.raw.items() if key != "result"},
                )

    def _write_artifact(self, key: str, job: JobView) -> None:
        """Update the run's artifact of this key; made once, also if the run is executed again."""
        artifact = artifact_of(key, job)
        with _passing_over(self._log):
            artifact_id = self._artifacts.get(key) or self._find_artifact(key)
            if artifact_id is None:
                made = ArtifactCreate(**artifact, flow_run_id=self._run.id)
                artifact_id = self._api.create_artifact(made).id
            else:
                change = ArtifactUpdate(data=artifact["data"], description=artifact["description"])
                self._api.update_artifact(artifact_id, change)
            self._artifacts[key] = artifact_id

    def _find_artifact(self, key: str) -> UUID | None:
        artifacts = self._api.read_artifacts(
            artifact_filter=ArtifactFilter(
                key=ArtifactFilterKey(any_=[key]),
                flow_run_id=ArtifactFilterFlowRunId(any_=[self._run.id]),
            )
        )
        return artifacts[0].id if artifacts else None

    def _is_news(self, what: str, value: Any) -> bool:
        if what in self._shown and self._shown[what] == value:
            return False
        self._shown[what] = value
        return True


def _run_ids(run: FlowRun) -> tuple[UUID, ...]:
    root = runtime.root_flow_run_id
    return (run.id, UUID(str(root))) if root and str(root) != str(run.id) else (run.id,)


@contextmanager
def _passing_over(log: "logging.Logger | logging.LoggerAdapter[Any]") -> Iterator[None]:
    """What the Prefect API does not take is logged and passed over."""
    try:
        yield
    except (PrefectException, httpx.HTTPError, OSError) as error:
        log.warning("Prefect did not take a note: %s", error)
