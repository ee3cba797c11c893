"""What the workers of a job hand in, and what they are to do."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from laxity import json_tree, names
from laxity.instants import instant_at
from laxity.job.manifest_reader import is_script
from laxity.job.qos import QoSError
from laxity.job.signal import Signal
from laxity.job.spec import TrainingSpec
from laxity.worker.progress.progress_posts import read_post
from laxity.worker.reports import LINES_PER_CALL, read_lines
from laxity_profiler.estimate import Workload
from laxity_profiler.history.history import History, HistoryError, LineMaker
from laxity_profiler.history.report_fold import ReportState
from laxity_profiler.history.script_posts import lines_of_end, lines_of_post
from laxity_profiler.model_key import model_key
from laxity_scheduler.http.job_views import JobViews
from laxity_scheduler.live import Manifest, UnknownJobError
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.views.live_view import final_condition
from laxity_scheduler.service.views.promise_outcome import is_over
from laxity_scheduler.service.views.view_fields import Json, job_id_of
from laxity_scheduler.service_clock import CLOCK
from laxity_scheduler.store.store import StoreError

LOG: Final = logging.getLogger(__name__)
NO_SCRIPT: Final = (
    "{} counts its epochs itself: progress is heard of a Job without annotations laxity.dev/epochs "
    "and laxity.dev/entry, whose command is not laxity's worker"
)


class ConflictError(RuntimeError):
    """The job's present state does not allow this: what it is, and what would do."""


class WorkerCalls:
    """Takes the calls of workers for one service."""

    def __init__(self, service: Service, views: JobViews, reports: History) -> None:
        self._service = service
        self._world = service.world
        self._views = views
        self._reports = reports
        self._unread: set[str] = set()  # uids of Jobs whose left reports no store took yet

    def ingest_reports(
        self, job_id: str, uid: str, lines: Sequence[object], *, behind_s: float | None = None
    ) -> int:
        """Take a worker's reports; ConflictError if they are of an earlier job of this name.

        `behind_s`: how far the worker's clock is behind this one, None where it does not say.
        MLflow's points first: lines that the history has are not read again from a file.
        """
        view = self._views.view_of(job_id)
        if uid != view["uid"]:
            raise ConflictError(f"{job_id} is another job: its uid is {view['uid']}, not {uid!r}")
        if lines:
            self._log_epochs(view["uid"], lines)
        return self._ingest(job_id, view, lines, behind_s=behind_s)

    def take_post(self, uid: str, pod_name: str, body: bytes) -> None:
        """Take what a script in this pod has posted. PostError; ConflictError if it is not heard."""
        post = read_post(body, CLOCK.now())
        view = self._service.view_cache.view_by_uid(uid)
        job = None if view is None else self._world.job(view["id"])
        if view is None or json_tree.uid_of(job) != uid:
            raise UnknownJobError(uid)
        if not _is_script(job):
            raise ConflictError(NO_SCRIPT.format(view["id"]))
        pod = self._world.script_pod(view["id"], pod_name)
        if pod is not None:
            self._write_lines(view, partial(lines_of_post, post=post, pod=pod))

    def _write_lines(self, view: Json, make: Callable[[ReportState], list[Json]]) -> list[Json]:
        """The report lines that a script cannot write for itself; MLflow gets all of its epochs."""
        made: list[Json] = []

        def keep(state: ReportState) -> list[Json]:
            made.extend(make(state))
            return made

        self._ingest(view["id"], view, keep)
        if made and self._service.notifications is not None:
            self._service.notifications.send_points(view["uid"], made, all_epochs=True)
        return made

    def _ingest(
        self,
        job_id: str,
        view: Json,
        lines: Sequence[object] | LineMaker,
        *,
        behind_s: float | None = None,
    ) -> int:
        row = self._service.state.by_id.get(job_id) if self._service.state else None
        since = max(row.resumed_at or 0.0, row.width_changed_at or 0.0) if row else 0.0
        acked = self._reports.ingest(
            view["uid"],
            job_id,
            self._workload_of(job_id, view),
            lines,
            behind_s=behind_s,
            nodes=row.nodes if row else (),
            since=since,
        )
        if lines:
            self._service.view_cache.mark_stale(view["uid"])
            self._service.metrics.reports.inc(1 if callable(lines) else len(lines))
            self._world.wake()
        return acked

    def take_left_reports(self, jobs: Sequence[Manifest]) -> None:
        """Take what is still to be said of those of these Jobs that have just ended.

        Their workers wrote it on this machine and could not send it; scripts have said nothing.
        Called before the cycle shows these Jobs as ended: what it learns of them is whole.
        """
        for job in jobs:
            uid = json_tree.uid_of(job)
            if uid in self._unread or self._has_just_ended(uid, job):
                self._unread.discard(uid)
                with self._service.metrics.faults.isolate("left reports", job_id_of(job)):
                    self._take_what_is_left(job_id_of(job), uid, job)

    def _has_just_ended(self, uid: str, job: Manifest) -> bool:
        view = self._service.view_cache.view_by_uid(uid)
        return bool(final_condition(job)) and (view is None or not is_over(view))

    def _take_what_is_left(self, job_id: str, uid: str, job: Manifest) -> None:
        try:
            self._take_left_reports_of(job_id, uid)
            self._take_end_of_script(job_id, job)
        except (HistoryError, StoreError) as error:
            self._unread.add(uid)
            LOG.warning(
                "what %s said last is taken later: %s", job_id, error, extra={"job": job_id}
            )

    def _take_left_reports_of(self, job_id: str, uid: str) -> None:
        path = Path(self._world.reports_path(job_id) or "")
        if not path.is_file():
            return
        acked = self.ingest_reports(job_id, uid, ())
        left = [line for line in read_lines(path) if line["seq"] > acked]
        for first in range(0, len(left), LINES_PER_CALL):
            self.ingest_reports(job_id, uid, left[first : first + LINES_PER_CALL])

    def _take_end_of_script(self, job_id: str, job: Manifest) -> None:
        condition, pod = final_condition(job), self._world.script_pod(job_id)
        if condition.get("type") != "Complete" or pod is None or not _is_script(job):
            return
        ended_at = instant_at(condition.get("lastTransitionTime")) or CLOCK.now()
        view = self._views.view_of(job_id)
        is_first = not self._reports.epochs(self._workload_of(job_id, view).model, most=1)
        made = self._write_lines(view, partial(lines_of_end, pod=pod, ended_at=ended_at))
        if is_first and any(line["kind"] == "declared" and line["epochs"] == 1 for line in made):
            self._world.tell(job_id, reason("no_progress"))

    def signal_for(self, job_id: str) -> Signal:
        """What the job's workers should do; an empty signal once the job has ended."""
        try:
            signal = self._world.signal(job_id)
        except UnknownJobError:
            self._views.view_of(job_id)
            return Signal()
        telling = self._service.notifications
        return replace(signal, logs_points=telling is not None and telling.logs_points)

    def _log_epochs(self, uid: str, lines: Sequence[object]) -> None:
        """Send to MLflow what a last report hands over, or all where workers log nothing."""
        telling = self._service.notifications
        if telling is not None:
            tracked_here = os.environ.get(names.ENV_TRACKED_BY) == "service"
            telling.send_points(uid, lines, all_epochs=tracked_here)

    def _workload_of(self, job_id: str, view: Json) -> Workload:
        if self._service.state is not None:
            row = self._service.state.by_id.get(job_id)
            if row is not None:
                return row.workload
        try:
            return Workload.of(TrainingSpec.from_manifest(self._world.job(job_id)))
        except (QoSError, UnknownJobError):
            namespace, _, name = job_id.partition("/")
            model = model_key(namespace, view["model"] or name)
            return Workload(model=model, epochs=max(1, view["epochs"]))


def _is_script(job: Manifest | None) -> bool:
    return is_script(json_tree.mapping_at(job, "spec"), json_tree.annotations_of(job))
