"""Submit a job and follow it to its end, whatever happens to the service meanwhile.

One long poll at a time. An absent service is waited for as long as it takes: the training goes on
without it. Who watches is told every new view, and may ask for the job to be cancelled.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol, TypeVar

from laxity.api.client import Client, ServiceAwayError, ServiceError, is_loopback
from laxity.api.job_view import TERMINAL_STATES, JobView
from laxity.api.status_text import TrainingCancelled, TrainingFailed

T = TypeVar("T")

ROLLOUT_S: Final = 120.0  # a service elsewhere may be rolled out anew, or its node drained
START_S: Final = 20.0  # one on this machine starts in seconds, if anybody starts it
POLL_S: Final = 5.0  # also the longest time until a cancelled flow run is noticed
PAUSE_S: Final = 1.0
GONE_ASKS: Final = 3  # a job that is not found so many times in a row is gone
# Said of a service that is away: whether its workers run on depends on how it went.
ASKED_AGAIN: Final = (
    "asked again until it answers; the workers go on meanwhile, unless laxity down stopped them"
)
_LATER: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR})


class FollowTimeoutError(RuntimeError):
    """The job had not ended when following it was to stop; it goes on."""

    def __init__(self, job: JobView) -> None:
        self.job = job
        super().__init__(f"{job.id} has not ended: {job.state}")


class Watcher(Protocol):
    """Who follows a job, for instance a Prefect flow run."""

    def on_change(self, job: JobView) -> None:
        """A new view of the job."""

    def should_cancel(self) -> bool:
        """Whether the job shall be cancelled; asked every few seconds."""
        ...

    def on_unavailable(self, problem: str) -> None:
        """The service did not answer; it is asked again."""


@dataclass(frozen=True, slots=True)
class JobFollower:
    """One connection, one watcher.

    `submit_patience_s`: how long a first answer is waited for; `timeout_s`: how long is followed.
    """

    client: Client
    watcher: Watcher
    submit_patience_s: float = ROLLOUT_S
    poll_s: float = POLL_S
    timeout_s: float = math.inf
    sleep: Callable[[float], None] = time.sleep

    def run(self, manifest: Mapping[str, Any]) -> JobView:
        """Submit, then follow until the job is settled. Raises TrainingCancelled if it was."""
        return self.follow(self.submit(manifest))

    def submit(self, manifest: Mapping[str, Any]) -> JobView:
        """The idempotency key makes asking again harmless, so an absent service is asked again."""
        give_up_at = time.monotonic() + self.submit_patience_s
        while True:
            try:
                return self.client.submit(manifest)
            except ServiceError as error:
                if not is_transient(error) or time.monotonic() >= give_up_at:
                    raise
                self._wait_after(error)
            if self.watcher.should_cancel():
                job = JobView(id=_manifest_id(manifest), state="cancelled")
                with suppress(ServiceError):  # it may exist: perhaps only the answer was lost
                    self.client.cancel(job.id)
                raise TrainingCancelled(job)

    def follow(self, job: JobView) -> JobView:
        """Views are handed on as they come, until the job is finished, failed, refused, cancelled.

        FollowTimeoutError after `timeout_s`; the job goes on.
        """
        until = time.monotonic() + self.timeout_s
        while True:
            self.watcher.on_change(job)
            if job.state in TERMINAL_STATES:
                return job
            job = self._next_view(job, until)

    def _next_view(self, job: JobView, until: float) -> JobView:
        """The next answer, however long the service is away; the job is cancelled when asked for."""
        missing = 0
        while True:
            if time.monotonic() >= until:
                raise FollowTimeoutError(job)
            if self.watcher.should_cancel():
                self.cancel(job.id)
                raise TrainingCancelled(job)
            try:
                wait_s = min(self.poll_s, max(0.0, until - time.monotonic()))
                return self.client.job(job.id, wait_s=wait_s, seen=job.revision)
            except ServiceError as error:
                missing = missing + 1 if error.status == HTTPStatus.NOT_FOUND else 0
                if missing >= GONE_ASKS:
                    raise TrainingFailed(job, "the Job was deleted") from error
                if not missing and not is_transient(error):
                    raise
                self._wait_after(error)

    def cancel(self, job_id: str) -> None:
        """Cancel the job, also if the service is away for a while; a job that is gone is fine."""
        give_up_at = time.monotonic() + self.submit_patience_s
        while True:
            try:
                self.client.cancel(job_id)
            except ServiceError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return
                if not is_transient(error) or time.monotonic() >= give_up_at:
                    raise
                self._wait_after(error)
            else:
                return

    def _wait_after(self, error: ServiceError) -> None:
        self.watcher.on_unavailable(str(error))
        if not isinstance(error, ServiceAwayError):  # for that one the client itself has waited
            self.sleep(PAUSE_S)


def submit_patience_s(url: str) -> float:
    """How long a service at this address is waited for before there is a job to follow."""
    return START_S if is_loopback(url) else ROLLOUT_S


def is_transient(error: ServiceError) -> bool:
    """Whether asking again may help: the service is away, overloaded or stumbled."""
    return isinstance(error, ServiceAwayError) or error.status in _LATER


def _manifest_id(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata") or {}
    return f"{metadata.get('namespace', 'default')}/{metadata.get('name')}"
