"""The live World, written once over any ClusterApi: observe the cluster, carry plans out.

It remembers nothing that it could not observe again. Promises, counters and stops in flight stand
on the Jobs themselves, so the service may be killed between any two lines and go on from there.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from laxity import json_tree, names
from laxity.instants import format_rfc3339
from laxity.job.signal import Signal
from laxity_k8s.act.adoption import Tending, find_correction, find_mended, write_refusal
from laxity_k8s.act.event_writer import MOST_WORDS, EventWriter, own_pod
from laxity_k8s.act.failing import find_failure
from laxity_k8s.act.finishing import Finisher
from laxity_k8s.act.job_submission import check_manifest, submit_job
from laxity_k8s.act.namespace_limits import Limits
from laxity_k8s.act.node_loans import NodeLoans
from laxity_k8s.act.node_marks import NodeMarks
from laxity_k8s.act.patches import Turn
from laxity_k8s.act.plan_patches import (
    WaitFilter,
    WorkerToken,
    explain_missing_pods,
    no_token,
    plan_patches,
)
from laxity_k8s.act.pod_signals import PodSignals
from laxity_k8s.act.release import count_released, release_jobs
from laxity_k8s.act.resealing import reseal_jobs
from laxity_k8s.act.rights import is_without_right
from laxity_k8s.act.sender import Sender
from laxity_k8s.act.state_notice import find_state_notice
from laxity_k8s.cluster_api import CONFLICT, NOT_FOUND, ApiError, ClusterApi, Json, Patch
from laxity_k8s.error_isolation import SHARED, Guard
from laxity_k8s.objects import jobs as objects
from laxity_k8s.objects import pods
from laxity_k8s.objects.conditions import end_instant, is_finished
from laxity_k8s.objects.node_rows.scaling_pool import ScalingPool
from laxity_k8s.objects.script_pods import find_script_pod
from laxity_k8s.objects.seal import Seal, clear_outputs
from laxity_k8s.objects.signals import Signals
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.entries import own_pods
from laxity_k8s.observe.quota_watch import QuotaWatch
from laxity_k8s.observe.snapshot import Snapshot
from laxity_k8s.steady_clock import is_clock_steady
from laxity_profiler.history.script_posts import ScriptPod
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import Manifest, Preview, Released, Reports, UnknownJobError
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import Reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.service_clock import CLOCK

LOG = logging.getLogger(__name__)
COLLECT_EVERY_S = 600.0
MEND_EVERY_S = 1.0
LONG_CUT_S = 5.0  # shorter ones take no time from pods that are to come up
WEEK_S = 7 * 86_400.0


class LiveCluster:
    """A LiveWorld. `cycle` is written into the snapshot and, if not 0, onto the Jobs."""

    def __init__(
        self,
        api: ClusterApi,
        reports: Reports,
        *,
        keep_s: float = WEEK_S,
        fit_within_s: float = 60.0,
        seal: Seal | None = None,
        limits: Limits | None = None,
        explain_missing: Callable[[Json, Sequence[Json]], str] = lambda *_: "",
        quotas: bool = False,
        worker_token: WorkerToken = no_token,
        pools: Sequence[ScalingPool] = (),
        faults: JobFaults | None = None,
    ) -> None:
        """`worker_token` makes the token that a Job's workers are given, of the Job's uid.

        `explain_missing` says of a Job and its pods why these do not run, "" if only they say it.
        `quotas`: the cluster has such, and limit ranges, that bound Jobs. `pools` may grow.
        """
        self.api, self.cycle = api, 0
        self._keep_s = keep_s
        self._worker_token = worker_token
        self._find_words = lambda job: explain_missing(job, self._own_pods(job))
        self._news, self._collected_at = threading.Event(), 0.0
        self._submitting, self._looking = threading.Lock(), threading.Lock()
        self._seal, self._limits = seal, limits
        believed = [] if seal is None else [seal.believe_job]
        self._cache = ClusterCache(api, self._news.set, *believed, faults=faults)
        self._signals, self._finisher = Signals(), Finisher(self._cache.put_back)
        self._pod_signals = PodSignals(
            api, self._cache, self._signals, reports, on_news=self._news.set, faults=faults
        )
        self._quotas = QuotaWatch(api.list, self._news.set, follow=api.watch) if quotas else None
        self._snapshot = Snapshot(
            self._cache, self._pod_signals.report_of,
            fit_within_s=fit_within_s, pools=pools, quotas=self._quotas, faults=faults,
        )  # fmt: skip
        self._guard, self._aside = Guard("patch", faults, self._snapshot.reject), Guard("removal")
        self._events, self._waits = EventWriter(api), WaitFilter()
        self._marks = NodeMarks(api, self._cache, scales=bool(pools))
        self._state: ClusterState | None = None
        self._sender = Sender(
            api, self._cache, self._events, self._snapshot.shown.get,
            put_off=self._snapshot.put_off, seal=seal, faults=faults,
        )  # fmt: skip
        self._loans = NodeLoans(
            api, self._cache, self._events, stop_lending=self._snapshot.inference.stop_lending
        )
        self.demand_history = self._snapshot.inference.history
        self.pool_arrivals = self._snapshot.pools.arrivals
        self.inference_waits = self._snapshot.inference.waits
        self.sees_inference = not api.is_local  # on this machine it has no pods
        self.stale_reason = ""

    @property
    def patch_outcomes(self) -> Mapping[str, int]:
        return self._sender.sent

    def observe(self) -> ClusterState:
        with self._looking:
            return self._observe_state()

    def reject(self, job_id: str, problem: str) -> None:
        self._snapshot.reject(job_id, problem)

    def find_left_out(self) -> Mapping[str, Reason]:
        with self._cache.lock:
            return {job_id: bad.refusal.reason for job_id, bad in self._snapshot.bad.items()}

    def find_undone(self) -> Mapping[str, str]:
        return self._sender.undone

    def carry_out(self, plan: Plan) -> None:
        """Send all patches, in the order that frees GPUs first; what is refused is decided anew."""
        with self._looking:
            state = self._state or self._observe_state()
            self._sender.undone = {}
            if self._sender.unsure:
                message = "patches may have landed whose answers were lost: nothing is done unseen"
                raise ApiError(message)
            patches = plan_patches(
                explain_missing_pods(plan.decisions, self._snapshot.shown, self._find_words),
                state,
                self._snapshot,
                self._waits,
                cycle=self.cycle,
                guard=self._guard,
                worker_token=self._worker_token,
            )
        for turn in Turn:
            self._sender.send_turn([patch for patch in patches if patch.turn == turn])
        self._sender.send_all(
            self._pod_signals.build_patches(state, CLOCK.now(), guard=self._guard)
        )
        self._loans.move_nodes(plan.decisions)
        self._marks.update(state)

    def fence(self, jobs: Sequence[str], term: int) -> None:
        """Let no earlier decision on these Jobs land (without rights none does); see what has landed."""
        noted = {"metadata": {"annotations": {names.TERM: str(term)}}}
        for done in self.api.patch_many([Patch("jobs", job, noted) for job in jobs]):
            if not (done.ok or done.status == NOT_FOUND or is_without_right(done)):
                raise ApiError(f"{done.patch.id} is not fenced: {done.message}", status=done.status)
        self._list_jobs()

    def adopt(self, knows: Callable[[Json], bool]) -> None:
        """Where the seal's key is new: seal the outputs of Jobs whose verdict is known."""
        if self._seal is None or not self._seal.is_new:
            return
        for job in reseal_jobs(self.api, self._seal, knows):
            self._cache.put_object("jobs", job)

    def submit(self, manifest: Manifest, cancelled: Sequence[Manifest] = ()) -> Json:
        with self._submitting:
            job = submit_job(
                self.api, self.jobs(), manifest, cancelled=cancelled,
                reports=self._pod_signals.report_of, now=CLOCK.now(), limits=self._limits,
            )  # fmt: skip
            self._cache.put_object("jobs", job)
        self._news.set()
        return job

    def preview(self, manifest: Manifest, now: float) -> Preview:
        job = check_manifest(manifest, now=now, is_local=self.api.is_local, limits=self._limits)
        job["metadata"]["creationTimestamp"] = format_rfc3339(int(now))
        return self._snapshot.preview(job, now)

    def jobs(self) -> Sequence[Json]:
        with self._cache.lock:
            return [job for job in self._cache.jobs.values() if objects.is_managed(job)]

    def job(self, job_id: str) -> Json:
        with self._cache.lock:
            job = self._cache.jobs.get(job_id)
        if job is None or not objects.is_managed(job):
            raise UnknownJobError(job_id)
        return job

    def annotate(self, job_id: str, annotations: Mapping[str, str | None]) -> Json:
        if self._limits is not None and {names.CLASS, names.DEADLINE} & annotations.keys():
            self._limits.check_class(self.job(job_id), dict(annotations))
        body = {"metadata": {"annotations": dict(annotations)}}
        try:
            job = self.api.patch(Patch("jobs", job_id, body))
        except ApiError as error:
            if error.status == NOT_FOUND:
                raise UnknownJobError(job_id) from error
            raise
        self._cache.put_object("jobs", job)
        self._news.set()
        return job

    def cancel(self, job_id: str) -> None:
        with self._cache.lock:
            job = self._cache.jobs.get(job_id)
        if job is None or not objects.is_managed(job) or is_finished(job):
            return
        try:
            self.api.delete("jobs", job_id, uid=job["metadata"]["uid"])
        except ApiError as error:
            if error.status not in {NOT_FOUND, CONFLICT}:  # gone, or another one by its name
                raise
        self._cache.drop_object("jobs", job_id)
        self._news.set()

    def signal(self, job_id: str) -> Signal:
        signal = self._signals.of(self.job(job_id))
        self._pod_signals.note_answer(job_id, signal)
        return signal

    def script_pod(self, job_id: str, name: str = "") -> ScriptPod | None:
        job = self.job(job_id)
        return find_script_pod(job, self._own_pods(job), name)

    def log_path(self, job_id: str, index: int) -> str | None:
        return self.api.log_path(job_id, index)

    def reports_path(self, job_id: str) -> str | None:
        return self.api.reports_path(self.job(job_id))

    def logs(self, job_id: str, index: int) -> str:
        """What the latest worker of this index has written; "" before there is one."""
        job = self.job(job_id)
        with self._cache.lock:
            there = self._cache.pods_of.get(job_id, {}).values()
            own = [pod for pod in there if (pods.index_of(pod) or 0) == index]
        latest = max(own, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)
        if latest is None:
            return self.api.log_left(job, index)
        with suppress(ApiError):
            return self.api.log(json_tree.object_id(latest))
        return ""

    def wait(self, timeout_s: float) -> bool:
        now = CLOCK.now()
        if now - self._collected_at >= COLLECT_EVERY_S:
            self._collected_at = now
            with suppress(*SHARED):  # what cannot be removed now is removed the next time
                self._aside("what ended long ago", self.collect)
        due_ats = (self._snapshot.due_at, self._pod_signals.due_at, self._finisher.due_at)
        due_s = min(*due_ats, self._sender.again_at) - now
        if self.stale_reason and not self._cache.cut:
            due_s = min(due_s, MEND_EVERY_S)
        news = self._news.wait(max(0.0, min(timeout_s, due_s)))
        self._news.clear()
        return news or due_s <= timeout_s

    def wake(self) -> None:
        self._news.set()

    def warn(self, problem: str, job_id: str = "") -> None:
        with self._cache.lock:
            job = self._cache.jobs.get(job_id)
        self._events.add_event(job or own_pod(), "cycles_fail", problem[:MOST_WORDS], warning=True)

    def tell(self, job_id: str, notice: Reason) -> None:
        is_warning = notice.code == "stalled"
        self._events.add_event(self.job(job_id), notice.code, notice.text, warning=is_warning)

    def release(self) -> Released:
        released, refused = release_jobs(self.api, self.jobs())
        for job in released:
            self._cache.put_object("jobs", job)
        self._marks.clear()
        return count_released(released, refused, self._loans.give_back_all())

    def collect(self) -> None:
        """Remove what ended long ago by a clock to believe, with what it left on this machine."""
        if not is_clock_steady():
            return
        for job in self.jobs():
            if end_instant(job) + self._keep_s <= CLOCK.now():
                with suppress(ApiError):
                    self.api.delete("jobs", json_tree.object_id(job), uid=job["metadata"]["uid"])
        self.api.collect(keep_s=self._keep_s)

    def close(self) -> None:
        if self._quotas is not None:
            self._quotas.close()
        self._cache.close()
        self._pod_signals.close()
        self._events.close()
        self.api.close()

    def _list_jobs(self) -> None:
        """See all Jobs as they are; what the watch tells later is known."""
        for job in self.api.list("jobs", selector=names.MANAGED).items:
            self._cache.put_object("jobs", job)
        self._sender.unsure = False

    def _observe_state(self) -> ClusterState:
        self._sender.again_at = FOREVER
        if self._sender.unsure:
            with suppress(ApiError):  # who cannot look does not act
                self._list_jobs()
        self.stale_reason = self._resync_cache()
        self._finisher.wake_due(CLOCK.now())
        self._snapshot.read_events(self._find_words, CLOCK.now())
        with self._cache.take_dirty() as (touched, nodes):
            now = CLOCK.now()
            self._drop_forged(touched)
            self._write_corrections(partial(self._find_correction, now=now), touched)
            seen, report_of = self._snapshot, self._pod_signals.report_of
            self._state = state = seen.take_state(touched, nodes=nodes, now=now, cycle=self.cycle)
            self._write_corrections(partial(write_refusal, bad=seen.bad), seen.untold)
            seen.untold.clear()
            self._write_corrections(find_mended, (touched & seen.shown.keys()) - seen.bad.keys())
            self._write_corrections(partial(find_state_notice, reports=report_of), seen.unnoted)
        return state

    def _resync_cache(self) -> str:
        """Why what is seen may be of several moments; "" if it is of one, if need be listed anew."""
        if self._cache.torn and not self._cache.cut:
            try:
                self._cache.resync(self.api)
            except ApiError as error:
                return f"after a watch was cut, the cluster cannot be listed: {error}"
            self._have_time_anew()
        if cut := self._cache.cut:
            return f"the API server cannot be watched for {' and '.join(cut)}"
        return "a watch was cut" if self._cache.torn else ""

    def _have_time_anew(self) -> None:
        """Pods that nobody could see come up, and that perhaps nobody could make, may yet do so."""
        now = CLOCK.now()
        if now - self._cache.torn_at >= LONG_CUT_S:
            for job_id in self._snapshot.wait_anew(now):
                self._cache.put_back(job_id)

    def _drop_forged(self, groups: set[str]) -> None:
        """Take outputs off Jobs where they are not laxity's."""
        with self._cache.lock:
            jobs = [(group, self._cache.jobs[group]) for group in groups & self._cache.forged]
        forged = [job for group, job in jobs if self._guard(group, objects.is_live, job)]
        for job in forged:
            name = json_tree.object_id(job)
            message = "%s carries outputs that laxity did not write: they are dropped"
            LOG.warning(message, name, extra={"job": name})
        self._sender.send_all([clear_outputs(job) for job in forged])

    def _find_correction(self, job: Json, now: float) -> Tending | None:
        """What a Job needs before it is counted.

        A new one is suspended, one changed by hand is pinned, one whose result is in is completed, one
        that keeps failing is failed.
        """
        report_of, own = self._pod_signals.report_of, self._own_pods(job)
        hangs_on = self._snapshot.hanging.words_of(json_tree.object_id(job))
        return (
            find_correction(job, now=now)
            or self._finisher.find(job, report_of(str(job["metadata"]["uid"])), own, now=now)
            or find_failure(job, own, report_of, now=now, hangs_on=hangs_on)
        )

    def _own_pods(self, job: Json) -> list[Json]:
        with self._cache.lock:
            there = list(self._cache.pods_of.get(json_tree.object_id(job), {}).values())
        return own_pods(job, there)

    def _write_corrections(
        self, asked: Callable[[Json], Tending | None], groups: Iterable[str]
    ) -> None:
        """Write on these Jobs what each needs before it is counted, or what is wrong with it."""
        with self._cache.lock:
            jobs = [(group, self._cache.jobs.get(group)) for group in sorted(groups)]
        corrections = [self._guard(group, asked, job) for group, job in jobs if job is not None]
        self._sender.write_corrections(
            [correction for correction in corrections if correction is not None]
        )
