"""A LiveWorld in memory: plans are carried out at once, and workers do what a test tells them."""

import itertools
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Event, RLock
from typing import Any

from laxity import names
from laxity.job.signal import Signal
from laxity.job.spec import TrainingSpec
from laxity_profiler.estimate import Progress
from laxity_profiler.history.script_posts import ScriptPod
from laxity_scheduler.live import DuplicateJobError, Manifest, Preview, Released, UnknownJobError
from laxity_scheduler.loans.demand_history import DemandHistory
from laxity_scheduler.loans.inference_waits import InferenceWaits
from laxity_scheduler.model.cluster import ClusterState, Node, NodeSet
from laxity_scheduler.model.job import Job, Refusal
from laxity_scheduler.model.pool_arrivals import PoolArrivals
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.store.codec import verdict_json
from tests.support.rows import new_row

Json = dict[str, Any]
TERMS = (names.DEADLINE, names.CLASS, names.WIDTHS, names.EPOCHS, names.EPOCH_ESTIMATE)


class MemoryWorld:
    """Nodes of so many GPUs. `carried_out` keeps every plan;
    `rejected` every Job that was turned away, `warned` what was told of failing cycles, `told` of jobs, `broken`
    makes observing fail, `blind` what is observed doubtful; `known_cancelled` are the Jobs that the
    last submission goes on from; `script_pods` are those that speak for Jobs, by their ids.
    """

    def __init__(self, *gpus: int) -> None:
        self.cycle = 0
        self.stale_reason = ""
        self.demand_history = DemandHistory()
        self.pool_arrivals = PoolArrivals()
        self.inference_waits = InferenceWaits()
        self.sees_inference = True
        self.carried_out: list[Plan] = []
        self.rejected: dict[str, str] = {}
        self.warned: list[tuple[str, str]] = []
        self.told: list[tuple[str, Reason]] = []
        self.broken: Exception | None = None
        self.observed = 0
        self.known_cancelled: list[Manifest] = []
        self.script_pods: dict[str, ScriptPod] = {}
        self._gpus = gpus
        self._lock = RLock()
        self._rows: dict[str, Job] = {}
        self._left_out: dict[str, Job] = {}  # rows of rejected Jobs: what they hold is counted
        self._jobs: dict[str, Json] = {}
        self._state: ClusterState | None = None
        self._news = Event()
        self._revisions = itertools.count(1)
        self._signals: dict[str, Signal] = {}

    @property
    def patch_outcomes(self) -> Mapping[str, int]:
        return {}

    def adopt(self, knows: Callable[[Json], bool]) -> None: ...

    def observe(self) -> ClusterState:
        with self._lock:
            self.observed += 1
            if self.broken is not None:
                raise self.broken
            self._state = self._snapshot()
            return self._state

    def reject(self, job_id: str, problem: str) -> None:
        with self._lock:
            self.rejected[job_id] = problem
            row = self._rows.pop(job_id, None)
            if row is None:
                return
            self._left_out[job_id] = row
            refusal = verdict_json(Refusal(reason("invalid", problem=problem)))
            self._write(job_id, {names.VERDICT: json.dumps(refusal | {"kind": "refusal"})})
            self._touch(job_id)

    def warn(self, problem: str, job_id: str = "") -> None:
        self.warned.append((problem, job_id))

    def tell(self, job_id: str, notice: Reason) -> None:
        self.told.append((job_id, notice))

    def find_left_out(self) -> Mapping[str, Reason]:
        return {}

    def find_undone(self) -> Mapping[str, str]:
        return {}

    def carry_out(self, plan: Plan) -> None:
        with self._lock:
            self.carried_out.append(plan)
            assert self._state is not None
            after = apply_plan(plan, self._state)
            for job in after.jobs:
                seen = self._state.by_id[job.id]
                if job is not seen and self._rows.get(job.id) is seen:  # else decided anew
                    gone = replace(job, terminating_workers=0) if not job.workers else job
                    self._set(replace(gone, since=self._state.now))
            if plan.decisions:
                self._news.set()

    def submit(self, manifest: Manifest, cancelled: Sequence[Manifest] = ()) -> Json:
        self.known_cancelled = list(cancelled)
        with self._lock:
            spec = TrainingSpec.from_manifest(manifest)
            there = self._jobs.get(spec.id)
            if there is not None:
                if there["metadata"]["annotations"].get(names.IDEMPOTENCY_KEY) != (
                    spec.idempotency_key or ""
                ):
                    raise DuplicateJobError(f"job {spec.id} exists already")
                return there
            job: Json = json.loads(json.dumps(manifest))
            job["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": spec.namespace}
            job["metadata"].setdefault("annotations", {})
            row = new_row(job, self._snapshot())
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row.submitted_at))
            job["metadata"]["creationTimestamp"] = stamp
            self._jobs[spec.id] = job
            self._set(row)
            self._news.set()
            return job

    def preview(self, manifest: Manifest, now: float) -> Preview:
        TrainingSpec.from_manifest(manifest)
        with self._lock:
            return Preview(
                new_row(manifest, replace(self._snapshot(), now=now)), NodeSet(frozenset())
            )

    def jobs(self) -> Sequence[Json]:
        with self._lock:
            return list(self._jobs.values())

    def job(self, job_id: str) -> Json:
        with self._lock:
            if job_id not in self._jobs:
                raise UnknownJobError(job_id)
            return self._jobs[job_id]

    def annotate(self, job_id: str, annotations: Mapping[str, str | None]) -> Json:
        with self._lock:
            said = self._write(job_id, annotations)
            if job_id in self._left_out:  # changed by somebody else: looked at anew
                self._rows[job_id] = self._left_out.pop(job_id)
            row = self._rows.get(job_id)
            if row is not None and {*TERMS, names.VERDICT} & set(annotations):
                spec = TrainingSpec.from_manifest(self._jobs[job_id])
                verdict = row.verdict if names.VERDICT in said else None
                row = replace(
                    row,
                    deadline_at=spec.qos.deadline_at(row.submitted_at),
                    service_class=spec.qos.service_class,
                    widths=spec.qos.widths or row.widths,
                    verdict=verdict,
                    asked=True,
                )
                self._rows[job_id] = row
            self._touch(job_id)
            return self._jobs[job_id]

    def cancel(self, job_id: str) -> None:
        with self._lock:
            if self._jobs.get(job_id, {}).get("status"):
                return
            self._jobs.pop(job_id, None)
            self._rows.pop(job_id, None)
            self._left_out.pop(job_id, None)
            self._news.set()

    def signal(self, job_id: str) -> Signal:
        with self._lock:
            job, row = self.job(job_id), self._rows.get(job_id)
            told = Signal(
                stop=row is None or row.stop_requested_at is not None or not row.workers,
                workers=None if row is None else row.resize_to or row.workers or None,
                run_id=job["metadata"]["annotations"].get(names.RUN_ID, "").rpartition("/")[2],
            )
            before = self._signals.get(job_id, Signal())
            if before != replace(told, generation=before.generation):
                self._signals[job_id] = replace(told, generation=before.generation + 1)
            return self._signals.get(job_id, before)

    def script_pod(self, job_id: str, name: str = "") -> ScriptPod | None:
        pod = self.script_pods.get(job_id)
        return pod if pod is not None and name in ("", pod.name) else None

    def log_path(self, job_id: str, index: int) -> str | None:
        return None

    def reports_path(self, job_id: str) -> str | None:
        return None

    def logs(self, job_id: str, index: int) -> str:
        self.job(job_id)
        return f"worker {index} of {job_id}\nwrote this\n"

    def wait(self, timeout_s: float) -> bool:
        news = self._news.wait(min(timeout_s, 3600.0))
        self._news.clear()
        return news

    def wake(self) -> None:
        self._news.set()

    def release(self) -> Released:
        with self._lock:
            waiting = (job.id for job in self._rows.values() if not job.workers)
            released = Released(len(self._rows), tuple(sorted(waiting)))
            self._rows.clear()
            self._jobs.clear()
            return released

    def close(self) -> None:
        self._news.set()

    # --- what a test makes happen ---

    def send_epochs(self, job_id: str, epochs: int, *, epoch_s: float = 1.0) -> None:
        """So many epochs are done by now."""
        with self._lock:
            row = self._rows[job_id]
            width = row.workers or 1
            progress = Progress(epochs, (epoch_s,) * min(epochs, 20), (width,) * min(epochs, 20))
            self._set(replace(row, progress=progress, since=time.time(), formed=row.workers))
            self._news.set()

    def epoch_began(self, job_id: str, at: float) -> None:
        """The epoch in flight began at this instant."""
        with self._lock:
            row = self._rows[job_id]
            self._set(replace(row, epoch_started_at=at, since=at, formed=row.workers))
            self._news.set()

    def parked(self, job_id: str, epoch: int) -> None:
        """The workers saved after this epoch and wait to be stopped."""
        with self._lock:
            self._set(replace(self._rows[job_id], parked_epoch=epoch, since=time.time()))
            self._news.set()

    def stopped(self, job_id: str) -> None:
        """Its workers are gone, as those of a job that made way for another one."""
        with self._lock:
            row = self._rows[job_id]
            gone = row.preemptions + 1
            self._set(replace(row, workers=0, nodes=(), preemptions=gone, since=time.time()))
            self._news.set()

    def finished(self, job_id: str, *, at: float | None = None, failed: bool = False) -> None:
        """The Job completes, or fails."""
        with self._lock:
            ended_at = time.time() if at is None else at
            text = _rfc3339(ended_at)
            condition = {
                "type": "Failed" if failed else "Complete",
                "status": "True",
                "lastTransitionTime": text,
                "message": "it broke" if failed else "",
            }
            self._jobs[job_id] = {
                **self._jobs[job_id],
                "status": {"conditions": [condition], "completionTime": text},
            }
            self._rows.pop(job_id, None)
            self._left_out.pop(job_id, None)
            self._touch(job_id)
            self._news.set()

    def row(self, job_id: str) -> Job:
        with self._lock:
            return self._rows[job_id]

    def _snapshot(self) -> ClusterState:
        rows = sorted(self._rows.values(), key=lambda row: (row.submitted_at, row.id))
        free = {f"n{number}": gpus for number, gpus in enumerate(self._gpus)}
        for row in (*rows, *self._left_out.values()):
            for name in row.nodes:
                free[name] -= row.gpus_per_worker
        nodes = tuple(
            Node(f"n{number}", gpus, free[f"n{number}"]) for number, gpus in enumerate(self._gpus)
        )
        return ClusterState(now=time.time(), nodes=nodes, jobs=tuple(rows), cycle=self.cycle)

    def _set(self, row: Job) -> None:
        self._rows[row.id] = row
        job = self._jobs[row.id]
        said = dict(job["metadata"]["annotations"])
        if row.verdict is not None:
            written = verdict_json(row.verdict)
            said[names.VERDICT] = json.dumps({**written, "kind": written["kind"].lower()})
        self._jobs[row.id] = {**job, "metadata": {**job["metadata"], "annotations": said}}
        self._touch(row.id)

    def _write(self, job_id: str, annotations: Mapping[str, str | None]) -> Json:
        job = self.job(job_id)
        said = job["metadata"]["annotations"] | annotations
        said = {key: value for key, value in said.items() if value is not None}
        self._jobs[job_id] = {**job, "metadata": {**job["metadata"], "annotations": said}}
        return dict(said)

    def _touch(self, job_id: str) -> None:
        job = self._jobs[job_id]
        revision = str(next(self._revisions))
        self._jobs[job_id] = {**job, "metadata": {**job["metadata"], "resourceVersion": revision}}


def _rfc3339(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
