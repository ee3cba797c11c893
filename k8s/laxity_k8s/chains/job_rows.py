"""Jobs and pods of a cluster as the rows of a queue.

A Job is one row: it waits until the first of its pods has a node, suspended (Kueue) or without a pod
(a quota) as well. Pods of nobody's, or of other kinds of owners, are rows of their own; those of
services and of nodes wait in no queue. A row is as large as the GPUs that it asks for, at least 1.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from laxity import json_tree
from laxity.instants import instant_at
from laxity.parsing import whole_number
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import containers
from laxity_k8s.objects import pods as pod_fields
from laxity_k8s.objects.conditions import (
    end_instant,
    find_condition,
    is_finished,
    read_condition,
)
from laxity_scheduler.following.link_queue import QueueRow

SERVICES: Final = frozenset({"DaemonSet", "Node", "ReplicaSet", "StatefulSet"})
MOST_WORKERS: Final = 100_000
_CODE: Final = re.compile(r"exit code (\d+)")


def read_rows(jobs: Iterable[Json], pods: Iterable[Json], *, gpus_only: bool) -> list[QueueRow]:
    """Ended ones too. With `gpus_only` only what asks for GPUs: it is what such a link waits for."""
    of_job: dict[str, list[Json]] = defaultdict(list)
    alone = []
    for pod in pods:
        uid = pod_fields.owner_of(pod)[1]
        if uid:
            of_job[uid].append(pod)
        elif not SERVICES & _owner_kinds(pod) and (pod_fields.count_gpus(pod) or not gpus_only):
            alone.append(pod)
    counted = (job for job in jobs if not gpus_only or _gpus(job))
    rows = [job_row(job, of_job[str(job["metadata"].get("uid"))]) for job in counted]
    return rows + [_pod_row(pod) for pod in alone]


def job_row(job: Json, pods: list[Json]) -> QueueRow:
    """One Job with its pods; its id is its name, which a Job of the same link has in common."""
    name = str(job["metadata"]["name"])
    started_at = _first_start(job, pods)
    ended_at = end_instant(job)
    state = _final_state(job, pods) or ("PENDING" if started_at is None else "RUNNING")
    return QueueRow(
        job_id=name,
        state=state,
        name=name,
        submitted_at=instant_at(json_tree.get_in(job, "metadata", "creationTimestamp")),
        started_at=started_at,
        ended_at=ended_at if math.isfinite(ended_at) else None,
        time_limit_s=_limit_s(json_tree.mapping_at(job, "spec", "template")),
        nodes=max(1, _gpus(job)),
        exit_code=_exit_code(job, pods) if state == "FAILED" else None,
    )


def failure_words(job: Json) -> str:
    """Why the Job has failed, in the controller's words."""
    failed = find_condition(job, "Failed")
    return f"{failed.get('reason')}: {failed.get('message')}" if failed else "no reason is given"


def _owner_kinds(pod: Json) -> set[str]:
    owners = json_tree.list_at(pod, "metadata", "ownerReferences")
    return {str(json_tree.get_in(owner, "kind")) for owner in owners}


def _gpus(job: Json) -> int:
    workers = whole_number(json_tree.get_in(job, "spec", "parallelism"), most=MOST_WORKERS)
    template = json_tree.mapping_at(job, "spec", "template")
    return pod_fields.count_gpus(template) * (1 if workers is None else workers)


def _first_start(job: Json, pods: list[Json]) -> float | None:
    """Of those that are still there; a Job that has been put back into the queue waits again.

    Between the end of its last pod and its own end a Job has ended pods only, and waits for nothing.
    """
    live = [pod for pod in pods if not pod_fields.is_finished(pod)]
    is_put_back = bool(live) or json_tree.get_in(job, "spec", "suspend") is True
    counted = live if is_put_back and not is_finished(job) else pods
    starts = [start for pod in counted if (start := _start_of(pod)) is not None]
    return min(starts, default=None)


def _start_of(pod: Json) -> float | None:
    return instant_at(json_tree.get_in(pod, "status", "startTime"))


def _final_state(job: Json, pods: list[Json]) -> str:
    if read_condition(job, "Complete") == "True":
        return "COMPLETED"
    if read_condition(job, "Failed") != "True":
        return ""
    reasons = [json_tree.get_in(pod, "status", "reason") for pod in pods]
    reasons += [row.get("reason") for row in json_tree.list_at(job, "status", "conditions")]
    return "TIMEOUT" if "DeadlineExceeded" in reasons else "FAILED"


def _exit_code(job: Json, pods: list[Json]) -> int | None:
    """By the rule that failed the Job, else of the pod that ended first."""
    match = _CODE.search(failure_words(job))
    if match:
        return int(match[1])
    codes = [pod_fields.exit_code(pod) for pod in sorted(pods, key=pod_fields.end_text)]
    return next((code for code in codes if code), None)


def _limit_s(pod: Json) -> float:
    seconds = json_tree.get_in(pod, "spec", "activeDeadlineSeconds")
    return float(seconds) if isinstance(seconds, int) else math.inf


def _pod_row(pod: Json) -> QueueRow:
    state = {"Succeeded": "COMPLETED", "Failed": "FAILED"}.get(pod_fields.phase_of(pod), "")
    started_at = _start_of(pod)
    return QueueRow(
        job_id=str(pod["metadata"].get("uid")),
        state=state or ("PENDING" if started_at is None else "RUNNING"),
        name=str(pod["metadata"]["name"]),
        submitted_at=instant_at(json_tree.get_in(pod, "metadata", "creationTimestamp")),
        started_at=started_at,
        ended_at=containers.end_instant(pod) or None,
        time_limit_s=_limit_s(pod),
        nodes=max(1, pod_fields.count_gpus(pod)),
    )
