"""What `submit --follow` says while a job runs: a line on stderr for each change.

A log of CI is read from the top and later, so lines have a time, and a long training is heard of at
every tenth of its epochs at least.
"""

import time
from collections.abc import Callable

from laxity.api.job_follower import ASKED_AGAIN
from laxity.api.job_view import TERMINAL_STATES, JobView
from laxity.api.status_text import (
    BROKEN,
    ENDANGERED,
    count_tenths,
    deadline_status,
    part_text,
    progress_text,
    stalled_text,
    standing_text,
)
from laxity.cli.render.job_table import FORECASTS, reason_text
from laxity.human_time import as_of


class ProgressLines:
    """A Watcher that writes lines; `say` takes one."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._say, self._clock = say, clock
        self._told: tuple[object, ...] = ()
        self._error = ""
        self._reason = ""
        self._stalled_since: float | None = None
        self._is_away = self._is_noted = False

    def on_change(self, job: JobView) -> None:
        if self._is_away:
            self._write_line("the service answers again")
        self._is_away = False
        stands = (deadline_status(job), job.deadline_at)
        state = (*stands, job.state, job.workers, job.part, count_tenths(job))
        if state != self._told and job.state not in TERMINAL_STATES:  # the end is shown in full
            now = self._clock()
            is_news = stands != self._told[:2] and stands[0] in {ENDANGERED, BROKEN}
            is_said = job.reason in {"", self._reason} or (is_news and job.reason_code in FORECASTS)
            reason = "" if is_said else f": {reason_text(job, now)}"
            self._reason = job.reason
            text = standing_text(job) if is_news else stands[0]
            progress = ", ".join(filter(None, (progress_text(job), part_text(job, now))))
            self._write_line(as_of(now, f"{job.id}: {text}, {progress}{reason}"))
        self._told = state
        if job.prediction_note and not self._is_noted and not job.ended:
            self._is_noted = (
                True  # the job's own epochs change it: the first one is of earlier runs
            )
            self._write_line(f"{job.id}: {job.prediction_note}")
        self._write_stall(job)
        self._write_failure(job)

    def _write_stall(self, job: JobView) -> None:
        """That no epoch ends is told once, and once that one has ended again."""
        if job.stalled_since != self._stalled_since and not job.ended:
            text = stalled_text(job, self._clock()) or "an epoch has ended again"
            self._write_line(f"{job.id}: {text}")
        self._stalled_since = job.stalled_since

    def _write_failure(self, job: JobView) -> None:
        """A worker that dies is started again, perhaps for hours: what it died of is told once."""
        if job.error and job.error != self._error and job.state not in TERMINAL_STATES:
            self._write_line(f"{job.id}: a worker failed: {job.error} (see: laxity logs {job.id})")
        self._error = job.error

    def should_cancel(self) -> bool:
        """Whoever stops following does not stop the job."""
        return False

    def on_unavailable(self, problem: str) -> None:
        """Said once: a service that is away for minutes would fill the log."""
        if not self._is_away:
            self._write_line(f"{problem} ({ASKED_AGAIN})")
        self._is_away = True

    def _write_line(self, text: str) -> None:
        clock_time = time.strftime("%H:%M:%S", time.localtime(self._clock()))
        self._say(f"{clock_time} {text}")
