"""What a running service reports to the profiler: what stops cost, and how predictions came out.

A prediction of a job's remaining time is noted when the job begins to train at a width, and when half
of its epochs are done. It is compared with the measured time when the job finishes. A stop, another
width and a training that begins anew make it void, and so does a system clock that is set or a machine that sleeps: all lessons
are differences of this machine's instants. A store that does not answer costs one observation, never a cycle.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_profiler.history.history import History, HistoryError
from laxity_profiler.history.report_fold import CLOCK_SLACK_S
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.transition_times import TransitionWatcher
from laxity_scheduler.service.views.view_cache import ViewChange

LOG: Final = logging.getLogger(__name__)


class Feedback:
    """Compares snapshots, and reports stops, starts and predictions to the history and the learner."""

    def __init__(self, stops: History, predictions: Learner) -> None:
        self._stops, self._predictions = stops, predictions
        self._watcher = TransitionWatcher()
        self._clock_offset_s = _clock_offset_s()
        # by uid: width of the course that was noted, and how far it is
        self._courses: dict[str, tuple[int, int]] = {}
        self._halfway: set[str] = set()
        self.faults = JobFaults()  # the publisher puts the service's here

    def observe_nodes_only(self, state: ClusterState) -> None:
        """Report the size of nodes: all that a replica learns that does not lead."""
        self._predictions.observe_nodes(max((node.gpus for node in state.nodes), default=0))

    def record_transitions(
        self, state: ClusterState, predictor: Predictor, uids: Mapping[str, str]
    ) -> None:
        """Report the transitions and the new predictions of a snapshot; `uids` by job id."""
        self.observe_nodes_only(state)
        if self._was_clock_set():
            self._watcher.ignore_before(state.now)
            self._drop_open_predictions()
        for stop in self._watcher.take_transitions(state, self.faults):
            uid = uids.get(stop.job, "")
            observe = partial(self._stops.observe_stop, uid, stop.workload, kind=stop.kind)
            self._ignore_store_errors(
                uid, partial(observe, workers=stop.workers, seconds=stop.seconds, at=stop.began_at)
            )
        for job in state.jobs:
            with self.faults.isolate("lesson", job.id):
                self._track_steady_run(job, uids.get(job.id, ""), predictor)

    def record_finishes(self, changes: Iterable[ViewChange], *, now: float) -> None:
        """Compare the predictions of finished jobs with what they took.

        A Job's end has the clock of its cluster: it came after the last report, and before `now`.
        """
        for change in changes:
            view = change.after
            if view["state"] == "finished" and (change.before or {}).get("state") != "finished":
                uid = view["uid"]
                self._courses.pop(uid, None)
                self._halfway.discard(uid)
                if view.get("finished_early"):  # all of its epochs were predicted
                    self._ignore_store_errors(uid, partial(self._predictions.drop_predictions, uid))
                ended_at = min(view["finished_at"], now)
                self._ignore_store_errors(uid, partial(self._observe_finish, uid, ended_at))

    def _observe_finish(self, uid: str, ended_at: float) -> None:
        reported_at = self._stops.report(uid).since
        self._predictions.observe_finish(uid, at=max(ended_at, reported_at))

    def _was_clock_set(self) -> bool:
        """Whether the system clock was set, or the machine slept, since the last call."""
        before_s, self._clock_offset_s = self._clock_offset_s, _clock_offset_s()
        return abs(self._clock_offset_s - before_s) > CLOCK_SLACK_S

    def _drop_open_predictions(self) -> None:
        """Drop what was predicted of the jobs that run: how long they take cannot be told."""
        for uid in list(self._courses):
            del self._courses[uid]
            self._halfway.discard(uid)
            self._ignore_store_errors(uid, partial(self._predictions.drop_predictions, uid))

    def _track_steady_run(self, job: Job, uid: str, predictor: Predictor) -> None:
        if job.progress.epochs_done >= job.workload.epochs:
            return  # its pods end now
        steady = job.formed and job.formed == job.workers and not job.resize_to
        width = job.formed if steady and job.stop_requested_at is None else 0
        before, reached = self._courses.get(uid, (0, 0))
        done = job.progress.epochs_done
        if not uid or (width == before and done >= reached):
            if before:
                self._courses[uid] = width, done
            self._note_halfway(job, uid, width, predictor)
            return
        if before:
            self._courses.pop(uid)
            self._halfway.discard(uid)
            self._ignore_store_errors(uid, partial(self._predictions.drop_predictions, uid))
        if width:
            self._courses[uid] = width, done
            stage = "running" if job.progress.epochs_done else "start"
            self._ignore_store_errors(
                uid, partial(self._note_prediction, job, uid, width, predictor, stage=stage)
            )

    def _note_halfway(self, job: Job, uid: str, width: int, predictor: Predictor) -> None:
        """Note the prediction once more when half of the epochs are done at the same width."""
        total = job.workload.epochs
        if width and uid not in self._halfway and total / 2 <= job.progress.epochs_done < total:
            self._halfway.add(uid)
            self._ignore_store_errors(
                uid, partial(self._note_prediction, job, uid, width, predictor, stage="half")
            )

    def _note_prediction(
        self, job: Job, uid: str, width: int, predictor: Predictor, *, stage: str
    ) -> None:
        self._predictions.note_prediction(
            uid,
            job.workload,
            stage=stage,
            at=job.epoch_started_at or job.since,
            estimate=predictor.remaining(job.workload, job.progress, width),
            version=predictor.version,
        )

    def _ignore_store_errors(self, uid: str, lesson: Callable[[], None]) -> None:
        with self.faults.isolate("lesson", uid):
            try:
                lesson()
            except HistoryError as error:
                LOG.warning("a lesson was lost: %s", error)


def _clock_offset_s() -> float:
    """The system clock over one that is never set and stands still while the machine sleeps."""
    return time.time() - time.monotonic()
