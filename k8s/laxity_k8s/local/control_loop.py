"""The local cluster's machinery: one thread that makes what is into what the objects say.

It plays three parts of Kubernetes: the job controller (reconcile.py), the scheduler (binding.py)
and the kubelet (kubelet.py). Each pass looks at the objects that changed and at the processes that
began or ended, and writes the differences; a pass may be cut off anywhere and is simply done again.
It sleeps until an object changes, a process ends or a back-off is over.
"""

import logging
import os
import select
import sqlite3
import threading
import time
from contextlib import suppress
from typing import Final

from laxity import json_tree
from laxity.instants import format_rfc3339
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.local.job_controller import reconcile_job
from laxity_k8s.local.kubelet import Kubelet, LocalConfig
from laxity_k8s.local.object_store import ObjectStore
from laxity_k8s.local.scheduler import find_bindings
from laxity_k8s.local.worker_processes import WorkerProcesses
from laxity_k8s.objects import pods

LOG: Final = logging.getLogger(__name__)
RETRY_S = 0.5  # after something went wrong


class Controller:
    """Owns the pods' rows and the workers' processes; Jobs it only gives a status."""

    def __init__(self, rows: ObjectStore, processes: WorkerProcesses, config: LocalConfig) -> None:
        self.rows, self.processes, self.config = rows, processes, config
        self._wake, self._wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopping = False
        self._again_at: dict[str, float] = {}
        self._undone: set[str] = set()  # pods whose last look went wrong
        self.kubelet = Kubelet(rows, processes, config)
        self._guard = Guard("life on the local cluster", on_problem=self._log_problem)
        self.seen = 0
        self.jobs: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self._thread = threading.Thread(
            target=self._run_loop, name="laxity-controller", daemon=True
        )

    def start(self) -> None:
        self._see_all()
        self.rows.listeners.append(self.wake)
        for uid in set(self.processes.list_uids()) - {
            json_tree.uid_of(pod) for pod in self.pods.values()
        }:
            self.kubelet.clear_away(uid)
        self._thread.start()

    def wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake_in, b".")

    def stop(self) -> None:
        """End the thread; the workers go on."""
        self._stopping = True
        self.wake()
        self._thread.join()
        self.rows.listeners.remove(self.wake)
        os.close(self._wake)
        os.close(self._wake_in)
        self.processes.close()

    def _see_all(self) -> None:
        self.seen = self.rows.revision
        self.jobs = {json_tree.object_id(job): job for job in self.rows.list_objects("jobs").items}
        self.pods = {json_tree.object_id(pod): pod for pod in self.rows.list_objects("pods").items}
        self._again_at = dict.fromkeys(self.jobs, 0.0)

    def _run_loop(self) -> None:
        dirty = set(self.pods)
        while not self._stopping:
            try:
                later = self.pass_over(dirty)
                dirty = later | self._wait_for_work(at_once=bool(later))
            except Exception as error:
                if not isinstance(error, sqlite3.Error):
                    LOG.exception("a pass failed; all is looked at anew")
                # or a full disk: nothing can be noted until there is room
                time.sleep(RETRY_S)
                with suppress(sqlite3.Error):
                    self._see_all()
                dirty = set(self.pods)
                self._again_at = dict.fromkeys(self.jobs, 0.0)

    def pass_over(self, dirty: set[str]) -> set[str]:
        """One pass: the pods named, and all objects that changed since; pods to look at next."""
        now = time.time()
        jobs = {job_id for job_id, retry_at in self._again_at.items() if retry_at <= now}
        jobs |= self._catch_up(dirty)
        dirty |= {pod_id for pod_id in self._undone if pods.owner_of(self.pods[pod_id])[0] in jobs}
        for pod_id in sorted(dirty & self.pods.keys()):
            pod = self.pods[pod_id]
            self._undone.discard(pod_id)
            if not self._guard.run_guarded(pod_id, self.kubelet.sync_pod, pod):
                self._undone.add(pod_id)
        later: set[str] = set()
        jobs |= self._catch_up(later)
        for job_id in sorted(jobs):
            if not self._guard.run_guarded(job_id, self._reconcile_job, job_id, now):
                self._again_at[job_id] = now + RETRY_S
        for pod_id in self._undone:
            self._again_at.setdefault(pods.owner_of(self.pods[pod_id])[0], now + RETRY_S)
        self._bind_pods()
        return later

    def _log_problem(self, what: str, problem: str) -> None:
        self.kubelet.write_event(
            "problem", f"{what}:{problem}", f"{what} is tried again: {problem}", self.pods.get(what)
        )

    def _wait_for_work(self, *, at_once: bool) -> set[str]:
        """Wait for a change, the end of a process or a time that was set; pods to look at."""
        timeout_s = None
        if at_once or self.rows.revision > self.seen:
            timeout_s = 0.0
        elif self._again_at:
            timeout_s = max(0.0, min(min(self._again_at.values()) - time.time(), 3600.0))
        poll = select.poll()
        for descriptor in (self._wake, *self.processes.descriptors()):
            poll.register(descriptor, select.POLLIN | select.POLLHUP)
        events = poll.poll(None if timeout_s is None else 1000.0 * timeout_s + (timeout_s > 0.0))
        ready = [descriptor for descriptor, _ in events]
        if self._wake in ready:
            ready.remove(self._wake)
            os.read(self._wake, 65_536)
        uids = {self.processes.take_event(descriptor) for descriptor in ready}
        for uid in uids - {json_tree.uid_of(pod) for pod in self.pods.values()}:
            self.kubelet.clear_away(uid)
        return {pod_id for pod_id, pod in self.pods.items() if json_tree.uid_of(pod) in uids}

    def _catch_up(self, dirty: set[str]) -> set[str]:
        """Read what changed: ids of changed pods go into `dirty`, of touched Jobs are returned."""
        changes, self.seen = self.rows.changes(None, self.seen)
        jobs = set()
        for kind, change in changes:
            key = json_tree.object_id(change.object)
            if kind == "pods":
                _keep_current(self.pods, key, change.object, gone=change.type == "DELETED")
                dirty.add(key)
                jobs.add(pods.owner_of(change.object)[0])
                if change.type == "DELETED":
                    self._undone.discard(key)
                    self.kubelet.clear_away(json_tree.uid_of(change.object))
            elif kind == "jobs":
                _keep_current(self.jobs, key, change.object, gone=change.type == "DELETED")
                jobs.add(key)
            elif kind == "nodes":
                dirty.update(self.pods)
        return jobs

    def _reconcile_job(self, job_id: str, now: float) -> None:
        """One step of one Job, all of it in one transaction."""
        self._again_at.pop(job_id, None)
        with self.rows.write_together():
            job = self.rows.find("jobs", job_id)
            uid = "" if job is None else json_tree.uid_of(job)
            mine = [pod for pod in self.pods.values() if pods.owner_of(pod)[0] == job_id]
            for pod in mine:
                if pods.owner_of(pod)[1] != uid:
                    self._delete_pod(json_tree.object_id(pod))
            if job is None:
                return
            own = [pod for pod in mine if pods.owner_of(pod)[1] == uid]
            step = reconcile_job(job, own, now=now, backoff=self.config.backoff)
            for pod_id in step.stop:
                self._delete_pod(pod_id)
            for pod_id in step.counted:
                self._forget_pod(pod_id)
            for pod_id in step.forget:
                self.rows.remove("pods", pod_id)
            for pod in step.create:
                self.rows.put("pods", pod)
            if step.status != job.get("status"):
                self.rows.put("jobs", {**job, "status": step.status})
        if step.again_at < float("inf"):
            self._again_at[job_id] = step.again_at

    def _delete_pod(self, pod_id: str) -> None:
        """Mark a pod as leaving, without its finalizer: it is no failure."""
        pod = self.rows.find("pods", pod_id)
        if pod is None:
            return
        meta = _unfinalized_metadata(pod)
        meta.setdefault("deletionTimestamp", format_rfc3339(time.time()))
        if pods.is_finished(pod):
            self.rows.remove("pods", pod_id)
        else:
            self.rows.put("pods", {**pod, "metadata": meta})

    def _forget_pod(self, pod_id: str) -> None:
        pod = self.rows.find("pods", pod_id)
        if pod is None:
            return
        meta = _unfinalized_metadata(pod)
        if meta.get("deletionTimestamp"):
            self.rows.remove("pods", pod_id)
        else:
            self.rows.put("pods", {**pod, "metadata": meta})

    def _bind_pods(self) -> None:
        waiting = [
            pod
            for pod in self.pods.values()
            if not (pods.node_of(pod) or pods.is_finished(pod) or pods.is_terminating(pod))
        ]
        if not waiting:
            return
        nodes = self.rows.list_objects("nodes").items
        node_of = find_bindings(waiting, self.pods.values(), nodes, self.jobs, self._guard)
        for pod_id, node in node_of.items():
            self._guard(pod_id, self._bind_one, pod_id, node)

    def _bind_one(self, pod_id: str, node: str) -> None:
        with self.rows.write_together():
            pod = self.rows.find("pods", pod_id)
            if pod is not None:
                self.rows.put("pods", {**pod, "spec": {**pod["spec"], "nodeName": node}})


def _unfinalized_metadata(pod: Json) -> Json:
    return {key: value for key, value in pod["metadata"].items() if key != "finalizers"}


def _keep_current(cache: dict[str, Json], key: str, thing: Json, *, gone: bool) -> None:
    if gone:
        cache.pop(key, None)
    else:
        cache[key] = thing
