"""The local cluster's kubelet: brings each pod's row and its worker process together.

Level-based: it looks at the row and at the process, and does what is missing. A worker whose guard
was killed, whose machine went down or whose node is gone is lost; its pod fails as disrupted, and
the job controller puts another in its place.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from laxity import json_tree, names
from laxity.backoff import Backoff
from laxity.instants import format_rfc3339
from laxity.job.complete_manifest import FROM_ANNOTATIONS
from laxity.private_files import private_file, private_folder
from laxity_k8s.act.event_writer import build_event
from laxity_k8s.cluster_api import Json
from laxity_k8s.local.frozen_code import is_frozen
from laxity_k8s.local.gpus import VISIBLE, choose_gpus
from laxity_k8s.local.launch import ADDRESS, build_launch
from laxity_k8s.local.object_store import ObjectStore
from laxity_k8s.local.worker_processes import Seen, WorkerProcesses
from laxity_k8s.objects import pods
from laxity_k8s.objects.attempts import origin_of
from laxity_k8s.objects.node_rows.nodes import is_ready

LOST_CODE: Final = 137
GRACE_S: Final = 30.0
MESSAGE_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """What every worker of this machine is given besides its own container's environment."""

    home: Path
    ambient: Mapping[str, str]
    given: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path("/")
    gpus: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of each node's slots
    backoff: Backoff = field(default_factory=Backoff)

    def log_path(self, job_id: str, index: int) -> Path:
        namespace, _, name = job_id.partition("/")
        return self.home / "logs" / f"{namespace}_{name}_{index}.log"

    def code_folder(self, job: Json) -> Path:
        """The copy of a frozen Job's code: each attempt has its own, beside its checkpoints."""
        return self.checkpoint_folder(job) / f"code-{json_tree.uid_of(job)}"

    def checkpoint_folder(self, job: Json) -> Path:
        """The folder of a Job's training, the same for all attempts at it."""
        began = origin_of(job)
        namespace = str(job["metadata"]["namespace"])
        return self.home / "checkpoints" / namespace / f"{began.name}-{began.uid[:8]}"


class Kubelet:
    """Starts, stops and mourns the workers of this machine."""

    def __init__(self, rows: ObjectStore, processes: WorkerProcesses, config: LocalConfig) -> None:
        self.rows, self.processes, self.config = rows, processes, config
        self._said: set[str] = set()

    def sync_pod(self, pod: Json) -> None:
        """The kubelet's part: bring a pod's process and its row together."""
        if pods.is_finished(pod):
            self.processes.forget(json_tree.uid_of(pod))
            return
        node = self.rows.find("nodes", pods.node_of(pod)) if pods.node_of(pod) else None
        if pods.node_of(pod) and (node is None or not is_ready(node)):
            self._replace_lost(pod, "NodeLost")
            return
        process = self.processes.read_state(json_tree.uid_of(pod))
        if process.state == "exited" and not process.disrupted:
            self._note_exit(pod, process)
        elif process.state in {"exited", "lost"}:
            self._replace_lost(pod, "WorkerLost")
        elif pods.is_terminating(pod):
            if process.state == "absent":
                self._note_exit(pod, Seen("exited", code=LOST_CODE, at=time.time()))
            self.processes.stop(json_tree.uid_of(pod))
        elif process.state == "absent" and node is not None:
            self._start_worker(pod)
        elif process.state == "running" and pods.phase_of(pod) != "Running":
            self._write_status(pod, _running_status(pod))

    def _start_worker(self, pod: Json) -> None:
        job_id, job_uid = pods.owner_of(pod)
        extra = {**self.config.given, "PYTHONUNBUFFERED": "1"}
        job = self.rows.find("jobs", job_id) if job_id else None
        if job is not None:
            folder = self.config.checkpoint_folder(job)
            private_folder(folder)
            extra |= {names.ENV_JOB: job_id, names.ENV_JOB_UID: job_uid}
            extra[names.ENV_TOKEN] = json_tree.annotations_of(pod).get(names.WORKER_TOKEN, "")
            extra[names.ENV_CHECKPOINTS] = str(folder)
            annotations = json_tree.annotations_of(job)
            if is_frozen(job):
                extra[names.ENV_CODE] = str(self.config.code_folder(job))
            extra |= {
                name: annotations[key] for name, key in FROM_ANNOTATIONS if key in annotations
            }
        what = build_launch(pod, ambient=self.config.ambient, extra=extra, cwd=self.config.cwd)
        what.env.update(self._own_gpus(pod))
        if job is not None and names.ENV_PROGRESS_TOKEN in what.env:
            what.env[names.ENV_PROGRESS_TOKEN] = str(_write_token(folder, extra[names.ENV_TOKEN]))
        if not what.argv:
            problem = "its container has no command, and this machine runs no images"
            self.write_event("no_command", f"command:{job_uid}", problem, pod)
            self._note_exit(pod, Seen("exited", code=127, at=time.time()))
            return
        if what.passed_over:
            warning = f"run without {', '.join(what.passed_over)}: this machine has only processes"
            self.write_event("passed_over", f"passed:{job_uid}", warning, pod)
        log = self.config.log_path(job_id or json_tree.object_id(pod), pods.index_of(pod) or 0)
        private_folder(log.parent)
        grace_s = float(json_tree.get_in(pod, "spec", "terminationGracePeriodSeconds") or GRACE_S)
        self.processes.start(json_tree.uid_of(pod), what, log=log, grace_s=grace_s)

    def _own_gpus(self, pod: Json) -> dict[str, str]:
        """What shows a worker the GPUs that are its own; {} on a machine without GPUs."""
        node = pods.node_of(pod)
        if node not in self.config.gpus:
            return {}
        taken = [
            gpu
            for other in self.rows.list_objects("pods").items
            if pods.node_of(other) == node and not pods.is_finished(other)
            for gpu in self.processes.env_of(json_tree.uid_of(other)).get(VISIBLE, "").split(",")
        ]
        return {VISIBLE: choose_gpus(self.config.gpus[node], taken, pods.count_gpus(pod))}

    def _note_exit(self, pod: Json, seen: Seen, *, disrupted: str = "") -> None:
        """The process is gone: note it, or drop the row if it was to be deleted anyway."""
        pod_id = json_tree.object_id(pod)
        with self.rows.write_together():
            latest = self.rows.find("pods", pod_id)
            if latest is None or json_tree.uid_of(latest) != json_tree.uid_of(pod):
                return
            if pods.is_terminating(latest) and not json_tree.list_at(
                latest, "metadata", "finalizers"
            ):
                self.rows.remove("pods", pod_id)
            else:
                last = self._last_lines(pod) if seen.code and not disrupted else ""
                status = build_terminated_status(latest, seen, disrupted, last)
                self.rows.put("pods", {**latest, "status": status})

    def _last_lines(self, pod: Json) -> str:
        """What a worker wrote last, as a pod with FallbackToLogsOnError shows it."""
        job_id, _ = pods.owner_of(pod)
        path = self.config.log_path(job_id or json_tree.object_id(pod), pods.index_of(pod) or 0)
        try:
            with path.open("rb") as log:
                log.seek(max(0, path.stat().st_size - MESSAGE_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _replace_lost(self, pod: Json, why: str) -> None:
        """The machine went down, the guard was killed or the node is gone: clear up, replace."""
        self.processes.kill(json_tree.uid_of(pod))
        self._note_exit(pod, Seen("exited", code=LOST_CODE, at=time.time()), disrupted=why)

    def _write_status(self, pod: Json, status: Json) -> None:
        with self.rows.write_together():
            latest = self.rows.find("pods", json_tree.object_id(pod))
            if latest is not None and json_tree.uid_of(latest) == json_tree.uid_of(pod):
                self.rows.put("pods", {**latest, "status": status})

    def clear_away(self, uid: str) -> None:
        """A folder whose pod is no more: stop what still runs, then remove it."""
        if not uid:
            return
        if self.processes.read_state(uid).state in {"running", "starting"}:
            self.processes.stop(uid)
        else:
            self.processes.kill(uid)
            self.processes.forget(uid)

    def write_event(self, code: str, once: str, words: str, pod: Json | None = None) -> None:
        """One Event; what was said before is not said again."""
        if once in self._said:
            return
        self._said.add(once)
        job_id, uid = pods.owner_of(pod) if pod else ("", "")
        namespace, _, name = job_id.partition("/")
        about = {"name": name or "local", "namespace": namespace or "default", "uid": uid}
        event = build_event({"metadata": about}, code, words, warning=True)
        event["metadata"]["creationTimestamp"] = event["firstTimestamp"]
        self.rows.put("events", event)


def _write_token(folder: Path, token: str) -> Path:
    """The file with the token of a script, which has a volume for it on Kubernetes."""
    file = private_file(folder / "token")
    file.write_text(token)
    return file


def _running_status(pod: Json) -> Json:
    now = format_rfc3339(time.time())
    kinds = ("Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "podIP": ADDRESS,
        "hostIP": ADDRESS,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds
        ],
        "containerStatuses": [
            {"name": _container_name(pod), "ready": True, "state": {"running": {"startedAt": now}}}
        ],
    }


def build_terminated_status(pod: Json, seen: Seen, disrupted: str, last: str) -> Json:
    end = format_rfc3339(seen.at)
    status = {**json_tree.mapping_at(pod, "status")}
    status["phase"] = "Failed" if seen.code else "Succeeded"
    status["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": end}]
    if disrupted:
        status["conditions"].append(
            {"type": "DisruptionTarget", "status": "True", "reason": disrupted}
        )
    message_field = {"message": last} if last else {}
    state = {"terminated": {"exitCode": seen.code, "finishedAt": end, **message_field}}
    status["containerStatuses"] = [{"name": _container_name(pod), "ready": False, "state": state}]
    return status


def _container_name(pod: Json) -> str:
    return str(json_tree.get_in(pod, "spec", "containers", 0, "name") or "")
