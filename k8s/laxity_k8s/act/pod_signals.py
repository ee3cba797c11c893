"""Signals that nobody comes for are written onto the pod of worker 0, and obeyed all the same.

Workers ask the service what to do, over HTTP. Where a signal has changed and for some seconds none
has asked, the pod cannot reach the service (a network policy, another network, no address): the
signal becomes an annotation of the pod, which the kubelet shows in it as a file. Such a worker's
reports cannot come either, so whether it waits at an epoch's end is read in its log. All of it is
level-based: what a pod says is compared with what it should say, each time.
"""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue

from laxity import json_tree, names
from laxity.job.signal import Signal, read_parked_epoch
from laxity_k8s.cluster_api import ClusterApi, Json, Patch
from laxity_k8s.error_isolation import SHARED, Guard
from laxity_k8s.objects import pods
from laxity_k8s.objects.signals import Signals
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import Report, Reports
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job

PATIENCE_S = 10.0  # a worker that is there hears of a change at once: its question is kept waiting
LOOK_S = 3.0  # between two looks into a log
TAIL_LINES = 50
MOST_HEARD = 1_000


@dataclass(frozen=True, slots=True)
class Parked:
    """What a log told: since this signal the worker waits at the end of this epoch."""

    generation: int
    epoch: int
    at: float


class PodSignals:
    """`report_of` is what workers said, with what was read in logs; `build_patches` are due now."""

    def __init__(
        self,
        api: ClusterApi,
        cache: ClusterCache,
        signals: Signals,
        reports: Reports,
        *,
        on_news: Callable[[], None],
        patience_s: float = PATIENCE_S,
        faults: JobFaults | None = None,
    ) -> None:
        self._api, self._cache, self._signals, self._reports = api, cache, signals, reports
        self._on_news, self._patience_s, self._faults = on_news, patience_s, faults
        self._heard: dict[str, int] = {}  # the signal that a worker of a job was told last
        self._unheard: dict[str, tuple[int, float]] = {}  # a signal, and since when nobody came
        self._written: set[str] | None = None  # jobs with a pod that has a signal; None: unknown
        self._parked: dict[str, Parked] = {}
        self._looked_at: dict[str, float] = {}
        self._logs: SimpleQueue[tuple[str, str, str, int, float] | None] = SimpleQueue()
        self._reader: threading.Thread | None = None
        self.due_at = FOREVER  # when there is something to do by time alone

    def note_answer(self, job_id: str, signal: Signal) -> None:
        """A worker of this job was told this."""
        self._heard[job_id] = signal.generation

    def report_of(self, uid: str) -> Report:
        report, parked = self._reports(uid), self._parked.get(uid)
        if parked is None:
            return report
        return replace(report, parked_epoch=parked.epoch, since=max(report.since, parked.at))

    def build_patches(self, state: ClusterState, now: float, *, guard: Guard) -> list[Patch]:
        """Signals to write onto pods now; a Job of which none can be made is the guard's."""
        self.due_at = FOREVER
        signalled = [job for job in state.running if self._is_concerned(job)]
        self._forget_others(signalled)
        if len(self._heard) > 2 * len(state.jobs) + MOST_HEARD:
            self._heard = {job: signal for job, signal in self._heard.items() if job in state.by_id}
        with self._cache.lock:
            made = (guard(job.id, self._build_patch, job, now) for job in signalled)
            return [patch for patch in made if patch is not None]

    def close(self) -> None:
        self._logs.put(None)
        if self._reader is not None:
            self._reader.join(timeout=10.0)

    def _is_concerned(self, job: Job) -> bool:
        """Its workers are asked for something, or a pod of it has been told something."""
        if self._written is None:
            with self._cache.lock:
                annotated = [pod for pod in self._cache.pods.values() if signal_on(pod)]
            self._written = {pods.owner_of(pod)[0] for pod in annotated}
        is_signalled = job.stop_requested_at is not None or job.resize_to > 0
        return is_signalled or job.id in self._written

    def _forget_others(self, asked: list[Job]) -> None:
        """What is known of jobs that are asked for nothing any more."""
        present = {job.id for job in asked}
        for table in (self._unheard, self._looked_at):
            for job_id in table.keys() - present:
                table.pop(job_id, None)
        stopping = {job.id for job in asked if job.stop_requested_at is not None}
        with self._cache.lock:
            waiting = {json_tree.uid_of(self._cache.jobs.get(job_id) or {}) for job_id in stopping}
        for uid in list(self._parked):  # a list at once: the reader may add one meanwhile
            if uid not in waiting:
                self._parked.pop(uid, None)

    def _build_patch(self, job: Job, now: float) -> Patch | None:
        manifest, pod = self._cache.jobs.get(job.id), self._find_leader(job.id)
        if manifest is None or pod is None:
            return None
        signal, written = self._signals.of(manifest), signal_on(pod)
        wanted = json.dumps(signal.to_json(), sort_keys=True)
        if written == wanted:
            if signal.stop:
                self._request_log(job.id, manifest, pod, signal, now)
            return None
        if not written and not self._has_waited(job.id, signal, now):
            return None
        if self._written is not None:
            self._written.add(job.id)
        body = {"metadata": {"annotations": {names.SIGNAL: wanted}}}
        return Patch("pods", json_tree.object_id(pod), body)

    def _has_waited(self, job_id: str, signal: Signal, now: float) -> bool:
        """Whether nobody has come for this signal for long enough."""
        if self._heard.get(job_id) == signal.generation:
            return False
        generation, since = self._unheard.get(job_id, (signal.generation, now))
        if generation != signal.generation:
            since = now
        self._unheard[job_id] = (signal.generation, since)
        if since + self._patience_s <= now:
            return True
        self.due_at = min(self.due_at, since + self._patience_s)
        return False

    def _find_leader(self, job_id: str) -> Json | None:
        """The running pod of worker 0, which speaks for all."""
        own = self._cache.pods_of.get(job_id, {}).values()
        live = (pod for pod in own if not pods.is_finished(pod) and not pods.is_terminating(pod))
        return next((pod for pod in live if pods.index_of(pod) == 0), None)

    def _request_log(self, job_id: str, job: Json, pod: Json, signal: Signal, now: float) -> None:
        """Have its log read, every few seconds, until it says that the worker waits."""
        parked_epoch = self._parked.get(json_tree.uid_of(job))
        if parked_epoch is not None and parked_epoch.generation == signal.generation:
            return
        if self._looked_at.get(job_id, -FOREVER) + LOOK_S <= now:
            self._looked_at[job_id] = now
            self._start_reading()
            self._logs.put(
                (job_id, json_tree.uid_of(job), json_tree.object_id(pod), signal.generation, now)
            )
        self.due_at = min(self.due_at, self._looked_at[job_id] + LOOK_S)

    def _start_reading(self) -> None:
        """A thread of its own: a kubelet that does not answer must not hold up a cycle."""
        if self._reader is None:
            self._reader = threading.Thread(target=self._read_logs, name="laxity-logs", daemon=True)
            self._reader.start()

    def _read_logs(self) -> None:
        guard = Guard("log", self._faults)
        while (request := self._logs.get()) is not None:
            with suppress(*SHARED):  # asked again in a moment
                guard(request[0], self._read_one, *request)

    def _read_one(self, job_id: str, uid: str, pod_id: str, generation: int, at: float) -> None:
        text = self._api.log(pod_id, tail=TAIL_LINES)
        epoch = read_parked_epoch(text, generation=generation)
        if epoch is not None:
            self._parked[uid] = Parked(generation, epoch, at)
            self._cache.put_back(job_id)
            self._on_news()


def signal_on(pod: Json) -> str:
    return json_tree.annotations_of(pod).get(names.SIGNAL, "")
