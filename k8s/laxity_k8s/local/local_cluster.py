"""The cluster on this machine: Jobs are rows in SQLite, workers are processes. The default.

The same five kinds of JSON, merge patches, resourceVersions and watches as an API server, so that
everything above runs here as it does on Kubernetes, and the same manifest goes to either.
"""

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from laxity import json_tree, names
from laxity.api.log_text import read_log
from laxity.backoff import Backoff
from laxity.flow.project import worker_variables
from laxity.instants import format_rfc3339, instant_at
from laxity.job.accelerators import GPU
from laxity.private_files import private_folder
from laxity.worker.code.environment import reports_file_of
from laxity_k8s.act.plan_patches import WorkerToken, no_token
from laxity_k8s.cluster_api import (
    ApiError,
    Change,
    Json,
    Kind,
    Listing,
    Patch,
    PatchResult,
    ignore_cut,
)
from laxity_k8s.error_isolation import Guard
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.control_loop import Controller
from laxity_k8s.local.frozen_code import freeze_code, is_frozen
from laxity_k8s.local.gpus import find_gpus, gpus_of_nodes
from laxity_k8s.local.job_admission import admit_job, apply_patch, with_status
from laxity_k8s.local.kubelet import LocalConfig
from laxity_k8s.local.object_store import ObjectStore
from laxity_k8s.local.shutdown import lock_home, stop_workers
from laxity_k8s.local.worker_processes import WorkerProcesses
from laxity_k8s.objects import pods
from laxity_k8s.objects.attempts import origin_of
from laxity_k8s.objects.conditions import is_finished
from laxity_k8s.objects.node_rows.pool_label import POOL
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import Reports

RESTARTS: Final = Backoff(first_s=1.0, longest_s=30.0, growth=30.0**0.5)  # after 1, 5 and 30 s
FLEET: Final = "inference"  # the pool of nodes that an inference process lends, and their names
# Where a worker logs, and as whom.
SHARED: Final = ("MLFLOW_TRACKING_", names.ENV_TRACKED_BY)

__all__ = ["LocalCluster", "RowWatch", "open_world", "stop_workers"]


def _choose_folder(home: Path) -> Path:
    """Where workers run whose Job names no folder: the user's home, else the service's."""
    try:
        return Path.home()
    except RuntimeError:  # a user without a name and without HOME, as in many containers
        return home


class LocalCluster:
    """A ClusterApi over one home folder. One process at a time may have it open."""

    is_local = True

    def __init__(
        self,
        home: Path,
        nodes: Mapping[str, int],
        *,
        gpus: Sequence[str] = (),
        given: Mapping[str, str] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """`nodes` is slots by name, `gpus` the GPUs of this machine that they stand for.

        `given` is environment that every worker gets.
        """
        private_folder(home)
        self._lock = lock_home(home)
        self.rows = ObjectStore(home / "cluster.db")
        config = LocalConfig(
            home=home,
            ambient=ambient_environment(os.environ),
            given=dict(given or {}),
            cwd=_choose_folder(home),
            gpus=gpus_of_nodes(nodes, gpus),
            backoff=backoff or RESTARTS,
        )
        self.config = config
        self._guard = Guard("patch on the local cluster")
        self.controller = Controller(self.rows, WorkerProcesses(home / "pods"), config)
        self._lay_out(nodes)
        self.controller.start()
        self._closed = False

    def list(self, kind: Kind, *, selector: str = "") -> Listing:
        return self.rows.list_objects(kind, selector)

    def get(self, kind: Kind, object_id: str) -> Json:
        return self.rows.get(kind, object_id)

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        on_change: Callable[[Change], None],
        on_cut: Callable[[bool], None] = ignore_cut,
    ) -> "RowWatch":
        del on_cut  # nothing stands in between
        return RowWatch(self.rows, kind, since=int(since or 0), on_change=on_change)

    def create(self, kind: Kind, body: Mapping[str, Any]) -> Json:
        thing = {**body, "metadata": _new_metadata(kind, json_tree.mapping_at(body, "metadata"))}
        if kind == "jobs":
            thing = admit_job({**thing, "status": {}})
            if is_frozen(thing) and self.rows.find(kind, json_tree.object_id(thing)) is None:
                freeze_code(thing, self.config.code_folder(thing))
        with self.rows.write_together():
            if self.rows.find(kind, json_tree.object_id(thing)) is not None:
                message = f'{kind} "{json_tree.object_id(thing)}" already exists'
                raise ApiError(message, status=409)
            return self.rows.put(kind, thing)

    def patch(self, patch: Patch) -> Json:
        with self.rows.write_together():
            old = self.rows.get(patch.kind, patch.id)
            expected = json_tree.get_in(patch.body, "metadata", "resourceVersion")
            if expected is not None and expected != old["metadata"]["resourceVersion"]:
                message = (
                    f'{patch.kind} "{patch.id}" has been modified: it is at revision '
                    f"{old['metadata']['resourceVersion']}, the patch was made on {expected}"
                )
                raise ApiError(message, status=409)
            return self.rows.put(patch.kind, merge_patch(old, patch))

    def patch_many(self, patches: Iterable[Patch]) -> Iterable[PatchResult]:
        return [self._try_patch(patch) for patch in patches]

    def delete(self, kind: Kind, object_id: str, *, uid: str = "") -> None:
        with self.rows.write_together():
            thing = self.rows.get(kind, object_id)
            if uid not in ("", thing["metadata"]["uid"]):
                message = f'{kind} "{object_id}" is another one: its uid is not {uid}'
                raise ApiError(message, status=409)
            if kind == "pods" and not pods.is_finished(thing):
                meta = {"deletionTimestamp": format_rfc3339(time.time()), **thing["metadata"]}
                self.rows.put(kind, {**thing, "metadata": meta})
            else:
                self.rows.remove(kind, object_id)

    def log(self, pod_id: str, *, tail: int | None = None) -> str:
        pod = self.rows.get("pods", pod_id)
        path = self.config.log_path(pods.owner_of(pod)[0] or pod_id, pods.index_of(pod) or 0)
        text = read_log(path)
        if tail is None:
            return text
        return "".join(text.splitlines(keepends=True)[-tail:]) if tail else ""

    def log_left(self, job: Json, index: int) -> str:
        """What a worker of this Job wrote whose pod is gone: a Job that fails drops the others."""
        path = self.config.log_path(json_tree.object_id(job), index)
        created_at = instant_at(job["metadata"]["creationTimestamp"])
        if created_at is None or not path.exists() or path.stat().st_mtime < created_at:
            return ""
        return read_log(path)

    def log_path(self, job_id: str, index: int) -> str:
        return str(self.config.log_path(job_id, index))

    def reports_path(self, job: Json) -> str:
        file = reports_file_of(json_tree.uid_of(job), training=origin_of(job).uid)
        return str(self.config.checkpoint_folder(job) / file)

    def collect(self, *, keep_s: float) -> int:
        """Drop Jobs that ended more than `keep_s` ago and folders that nobody uses; how many."""
        from laxity_k8s.local.garbage import collect_garbage

        return collect_garbage(self.rows, self.config, keep_s=keep_s, now=time.time())

    def close(self) -> None:
        """Stop looking after the workers; they go on, and the next to open the folder takes over."""
        if self._closed:
            return
        self._closed = True
        self.controller.stop()
        self.rows.close()
        os.close(self._lock)

    def _try_patch(self, patch: Patch) -> PatchResult:
        try:
            made = self._guard(patch.id, self.patch, patch)
        except ApiError as error:
            return PatchResult(patch, error.status, None, str(error))
        if made is None:
            return PatchResult(patch, 422, None, self._guard.last_problem(patch.id))
        return PatchResult(patch, 200, made)

    def _lay_out(self, nodes: Mapping[str, int]) -> None:
        """The nodes as they were asked for; those of an earlier time are gone."""
        for node in self.rows.list_objects("nodes").items:
            if json_tree.object_id(node) not in nodes:
                self.rows.remove("nodes", json_tree.object_id(node))
        for name, gpus in nodes.items():
            old = self.rows.find("nodes", name) or {}
            self.rows.put("nodes", json_tree.merge_patch(old, _build_node(name, gpus, old)))


class RowWatch:
    """Calls back from its own thread for every change after a revision."""

    def __init__(
        self, rows: ObjectStore, kind: Kind, *, since: int, on_change: Callable[[Change], None]
    ) -> None:
        self._rows, self._kind, self._since, self._on_change = rows, kind, since, on_change
        self._stopping = False
        self._ids: set[str] = set()
        self._thread = threading.Thread(target=self._follow_rows, name=f"watch-{kind}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._rows.changed:
            self._stopping = True
            self._rows.changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _follow_rows(self) -> None:
        while True:
            with self._rows.changed:
                while not self._stopping and self._rows.revision <= self._since:
                    self._rows.changed.wait()
                if self._stopping:
                    return
                changes = self._next_changes()
            for change in changes:
                key = json_tree.object_id(change.object)
                (self._ids.discard if change.type == "DELETED" else self._ids.add)(key)
                self._on_change(change)

    def _next_changes(self) -> Sequence[Change]:
        try:
            changes, self._since = self._rows.changes(self._kind, self._since)
        except ApiError:  # too old: all that is, and what was seen and is no more
            listing = self._rows.list_objects(self._kind)
            self._since = int(listing.resource_version)
            here = {json_tree.object_id(thing) for thing in listing.items}
            gone = [deletion_of(key) for key in self._ids - here]
            return [*gone, *(Change("MODIFIED", thing) for thing in listing.items)]
        return [change for _, change in changes]


def open_world(
    home: Path,
    reports: Reports,
    *,
    slots: int | None = None,
    inference_slots: int = 0,
    url: str = "",
    worker_token: WorkerToken = no_token,
    nodes: Mapping[str, int] | None = None,
    keep_s: float = 7 * 86_400.0,
    fit_within_s: float = 60.0,
    pools: str = "",
    faults: JobFaults | None = None,
) -> LiveCluster:
    """The live world on this machine, where no `pools` scale. `slots` are the GPUs of node "local".

    By default there is one for each GPU that inference leaves, without GPUs one for each core. Each
    of the `inference_slots` is a node of its own, since whole nodes are lent.
    `url` is handed to the workers; `nodes` (GPUs by name) lays out several nodes.
    """
    del pools
    gpus = find_gpus(os.environ)
    own = max(1, len(gpus) - inference_slots) if gpus else os.cpu_count() or 1
    layout = dict(nodes) if nodes is not None else {"local": slots or own}
    layout |= dict.fromkeys(inference_nodes(inference_slots), 1)
    env = {names.ENV_URL: url, names.ENV_HOME: str(home)}
    variables = {key: value for key, value in env.items() if value}
    cluster = LocalCluster(home, layout, gpus=gpus, given=variables)
    return LiveCluster(
        cluster,
        reports,
        keep_s=keep_s,
        fit_within_s=fit_within_s,
        worker_token=worker_token,
        faults=faults,
    )


def inference_nodes(slots: int) -> list[str]:
    """The names of the nodes that an inference process of this machine lends."""
    return [f"{FLEET}-{number}" for number in range(slots)]


def open_lease(world: LiveCluster, home: Path, *, store_id: str, lease_s: float) -> None:
    """No other replica has this folder open: nobody is elected."""


def ambient_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What workers get of the service's own environment: how to run here, and where to log.

    Its other variables (the store's password, keys of a cloud) are none of their business.
    """
    shared = {name: value for name, value in environ.items() if name.startswith(SHARED)}
    return worker_variables(environ) | shared


def merge_patch(old: Json, patch: Patch) -> Json:
    if patch.kind != "jobs":
        return dict(json_tree.merge_patch(old, patch.body))
    if patch.subresource == "status":
        return with_status(old, patch.body)
    if is_finished(old):  # accepted and without effect on what runs
        return dict(
            json_tree.merge_patch(old, {k: v for k, v in patch.body.items() if k != "status"})
        )
    return apply_patch(old, patch.body)


def _new_metadata(kind: Kind, given: Mapping[str, Any]) -> Json:
    made: Json = {
        **given,
        "uid": str(uuid.uuid4()),
        "creationTimestamp": format_rfc3339(time.time()),
    }
    made["generation"] = 1
    made.pop("resourceVersion", None)
    if kind != "nodes":
        made["namespace"] = made.get("namespace") or "default"
    if not made.get("name") and made.get("generateName"):
        made["name"] = f"{made['generateName']}{uuid.uuid4().hex[:5]}"
    return made


def _build_node(name: str, gpus: int, old: Json) -> Json:
    metadata = json_tree.mapping_at(old, "metadata") or _new_metadata("nodes", {"name": name})
    pool = {POOL: FLEET} if name.startswith(f"{FLEET}-") else {}
    size = {GPU: str(gpus), "cpu": str(os.cpu_count() or 1)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            **metadata,
            "labels": {"kubernetes.io/hostname": name, **pool, **json_tree.labels_of(old)},
        },
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def deletion_of(key: str) -> Change:
    namespace, _, name = key.rpartition("/")
    return Change("DELETED", {"metadata": {"namespace": namespace, "name": name}})
