"""What the workers of a job hand in, and what they are to do."""

import os
from collections.abc import Sequence
from dataclasses import replace

from laxity import names
from laxity.job.qos import QoSError
from laxity.job.signal import Signal
from laxity.job.spec import TrainingSpec
from laxity_profiler.estimate import Workload
from laxity_profiler.history.history import History
from laxity_profiler.model_key import model_key
from laxity_scheduler.http.job_views import JobViews
from laxity_scheduler.live import UnknownJobError
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.view_fields import Json


class ConflictError(RuntimeError):
    """The job's present state does not allow this: what it is, and what would do."""


class WorkerCalls:
    """Takes the calls of workers for one service."""

    def __init__(self, service: Service, views: JobViews, reports: History) -> None:
        self._service = service
        self._world = service.world
        self._views = views
        self._reports = reports

    def ingest_reports(self, job_id: str, uid: str, lines: Sequence[object]) -> int:
        """Take a worker's reports; ConflictError if they are of an earlier job of this name."""
        view = self._views.view_of(job_id)
        if uid != view["uid"]:
            raise ConflictError(f"{job_id} is another job: its uid is {view['uid']}, not {uid!r}")
        row = self._service.state.by_id.get(job_id) if self._service.state else None
        since = max(row.resumed_at or 0.0, row.width_changed_at or 0.0) if row else 0.0
        acked = self._reports.ingest(
            view["uid"],
            job_id,
            self._workload_of(job_id, view),
            lines,
            nodes=row.nodes if row else (),
            since=since,
        )
        if lines:
            self._service.view_cache.mark_stale(view["uid"])
            self._service.metrics.reports.inc(len(lines))
            self._log_epochs(view["uid"], lines)
            self._world.wake()
        return acked

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
