"""The job controller of the local cluster as a pure function: a Job and its pods become what to do.

Level-based, like Kubernetes' own: it looks at what is, never at what happened. Done twice it asks
for nothing the second time, so it may be cut off anywhere and go on later. A failed or finished pod
is counted once, in the same write that takes the tracking finalizer off the pod.
"""

import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from laxity import json_tree
from laxity.backoff import Backoff
from laxity.instants import format_rfc3339, instant_at
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.conditions import find_condition, is_finished, read_condition
from laxity_k8s.objects.containers import end_instant
from laxity_k8s.objects.pods import COMPLETION_INDEX

TRACKED = "batch.kubernetes.io/job-tracking"
KEPT_FAILURES = 10  # pods of one index that are kept to be looked at


@dataclass(slots=True)
class Step:
    """What the Job needs now: a status, pods to make, to stop, to count and to forget."""

    status: Json
    create: list[Json] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    forget: list[str] = field(default_factory=list)
    again_at: float = float("inf")


def reconcile_job(job: Json, own: Sequence[Json], *, now: float, backoff: Backoff) -> Step:
    """One step towards the Job's spec. `own` are its pods, those that are over too."""
    status = {**json_tree.mapping_at(job, "status")}
    step = Step(status)
    if is_finished(job):
        step.stop = [json_tree.object_id(pod) for pod in own if not pods.is_finished(pod)]
        return step
    ending = _count_finished(job, own, step)
    alive = [pod for pod in own if not pods.is_finished(pod)]
    active = [pod for pod in alive if not pods.is_terminating(pod)]
    terminating = [pod for pod in alive if pods.is_terminating(pod)]
    _write_suspension(job, step, now)
    ending = ending or _find_end(job, step, now=now)
    if ending or job["spec"].get("suspend"):
        step.stop = [json_tree.object_id(pod) for pod in active]
        terminating, active = [*terminating, *active], []
    else:
        leaving = _find_surplus(job, status, active)
        step.stop = [json_tree.object_id(pod) for pod in leaving]
        active = [pod for pod in active if pod not in leaving]
        terminating += leaving
        _start_pods(job, own, step, alive=alive, now=now, backoff=backoff)
    _count_pods(status, [*active, *step.create], terminating)
    if ending:
        message = find_condition(job, "FailureTarget").get("message") or first_failure(own)
        _write_end(status, ending, str(message), now, gone=not terminating)
    step.forget = _old_failures(own)
    return step


def _count_finished(job: Json, own: Sequence[Json], step: Step) -> str:
    """Count pods that are over; a reason if the failure policy says that the Job fails."""
    status, ending = step.status, ""
    for pod in own:
        if not pods.is_finished(pod) or TRACKED not in json_tree.list_at(
            pod, "metadata", "finalizers"
        ):
            continue
        step.counted.append(json_tree.object_id(pod))
        if pods.phase_of(pod) == "Succeeded":
            done = pods.parse_ranges(status.get("completedIndexes", "")) | {pods.index_of(pod) or 0}
            status["completedIndexes"] = pods.format_ranges(done)
        else:
            action = failure_action(
                json_tree.list_at(job, "spec", "podFailurePolicy", "rules"), pod
            )
            status["failed"] = status.get("failed", 0) + (action != "Ignore")
            ending = ending or ("PodFailurePolicy" if action == "FailJob" else "")
    return ending


def failure_action(rules: Sequence[Mapping[str, Any]], pod: Json) -> str:
    """Count, or what the first rule of a podFailurePolicy says that matches a failed pod."""
    for rule in rules:
        if "onExitCodes" in rule:
            applies = pods.exit_code(pod) in rule["onExitCodes"]["values"]
        else:
            applies = bool(pods.disruption_reason(pod))
        if applies:
            return str(rule["action"])
    return "Count"


def _write_suspension(job: Json, step: Step, now: float) -> None:
    """The Suspended condition, and a new start time at every resume."""
    status, was = step.status, read_condition(job, "Suspended")
    if job["spec"].get("suspend"):
        if was != "True":
            _set_condition(status, "Suspended", "True", "JobSuspended", now)
        return
    if was == "True":
        _set_condition(status, "Suspended", "False", "JobResumed", now)
        status["startTime"] = format_rfc3339(now)
    status.setdefault("startTime", format_rfc3339(now))


def _find_end(job: Json, step: Step, *, now: float) -> str:
    """Why the Job is over now: "" if it is not."""
    spec, status = job["spec"], step.status
    if read_condition(job, "SuccessCriteriaMet") == "True":
        return "CompletionsReached"
    if target := find_condition(job, "FailureTarget"):
        return str(target["reason"])
    if status.get("failed", 0) > spec["backoffLimit"]:
        return "BackoffLimitExceeded"
    limit, started = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if limit is not None and started and not spec.get("suspend"):
        end_at = (instant_at(started) or now) + float(limit)
        if now >= end_at:
            return "DeadlineExceeded"
        step.again_at = min(step.again_at, end_at)
    wanted = spec["completions"]
    done = {i for i in pods.parse_ranges(status.get("completedIndexes", "")) if i < wanted}
    status["completedIndexes"], status["succeeded"] = pods.format_ranges(done), len(done)
    return "CompletionsReached" if len(done) >= wanted else ""


def _find_surplus(job: Json, status: Json, active: list[Json]) -> list[Json]:
    """Pods that are too many: indexes beyond the width first, then the highest."""
    spec = job["spec"]
    by_index = sorted(active, key=_order_key)
    inside = [pod for pod in by_index if _order_key(pod)[0] < spec["completions"]]
    beyond = [pod for pod in by_index if pod not in inside]
    return beyond + inside[_active_width(spec, status) :]


def _active_width(spec: Json, status: Json) -> int:
    """How many pods may be active at once."""
    return min(int(spec["parallelism"]), int(spec["completions"]) - int(status["succeeded"]))


def _start_pods(
    job: Json, own: Sequence[Json], step: Step, *, alive: list[Json], now: float, backoff: Backoff
) -> None:
    """New pods for indexes that have none; an old pod is waited for until it has gone."""
    spec, status = job["spec"], step.status
    room = _active_width(spec, status) - len(
        [p for p in alive if json_tree.object_id(p) not in step.stop]
    )
    taken = {pods.index_of(pod) for pod in alive}
    done = pods.parse_ranges(status.get("completedIndexes", ""))
    missing = [i for i in range(int(spec["completions"])) if i not in taken and i not in done]
    for index in missing[: max(0, room)]:
        ready_at = _ready_at(
            own, index, since=instant_at(status["startTime"]) or 0.0, backoff=backoff
        )
        if ready_at <= now:
            step.create.append(new_pod(job, index, now))
        else:
            step.again_at = min(step.again_at, ready_at)


def _ready_at(own: Sequence[Json], index: int, *, since: float, backoff: Backoff) -> float:
    ends = [
        end_instant(pod)
        for pod in own
        if pods.phase_of(pod) == "Failed"
        and pods.index_of(pod) == index
        and not pods.disruption_reason(pod)
    ]
    recent = [end for end in ends if end >= since]
    return max(recent) + backoff.delay_s(len(recent)) if recent else 0.0


def _old_failures(own: Sequence[Json]) -> list[str]:
    """Pods that failed long ago: all but the latest of each index."""
    old: list[str] = []
    failed = [
        p for p in own if pods.is_finished(p) and not json_tree.list_at(p, "metadata", "finalizers")
    ]
    for index in {pods.index_of(pod) for pod in failed}:
        mine = sorted((p for p in failed if pods.index_of(p) == index), key=end_instant)
        old += [json_tree.object_id(pod) for pod in mine[:-KEPT_FAILURES]]
    return old


def _count_pods(status: Json, active: Sequence[Json], terminating: Sequence[Json]) -> None:
    status.pop("active", None)
    if active:
        status["active"] = len(active)
    status["ready"] = sum(1 for pod in active if pods.is_ready(pod))
    status["terminating"] = len(terminating)


def first_failure(own: Sequence[Json]) -> str:
    """The pod that failed first, with its exit code: "" if none did.

    Others may end before it, since they miss it: they only make way.
    """
    ended = [pod for pod in own if pods.phase_of(pod) == "Failed"]
    failed = [pod for pod in ended if pods.has_failed(pod)] or ended
    return pods.worker_failure(min(failed, key=end_instant)) if failed else ""


def _write_end(status: Json, why: str, message: str, now: float, *, gone: bool) -> None:
    """First the condition that says how it will end; the final one when all pods are gone."""
    well = why == "CompletionsReached"
    message_field = {} if well else {"message": message}
    _set_condition(
        status, "SuccessCriteriaMet" if well else "FailureTarget", "True", why, now, **message_field
    )
    if gone:
        _set_condition(status, "Complete" if well else "Failed", "True", why, now, **message_field)
        if well:
            status["completionTime"] = format_rfc3339(now)


def new_pod(job: Json, index: int, now: float) -> Json:
    """A pod of the Job's template, with the labels and annotations that Kubernetes gives it."""
    meta, template = job["metadata"], json_tree.mapping_at(job, "spec", "template")
    name = meta["name"]
    labels = {
        **json_tree.labels_of(template),
        **{f"{prefix}job-name": name for prefix in ("", "batch.kubernetes.io/")},
        **{f"{prefix}controller-uid": meta["uid"] for prefix in ("", "batch.kubernetes.io/")},
    }
    notes = {**json_tree.annotations_of(template), COMPLETION_INDEX: str(index)}
    labels[COMPLETION_INDEX] = str(index)
    spec = {**template.get("spec", {}), "hostname": f"{name}-{index}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{index}-{secrets.token_hex(3)[:5]}",
            "namespace": meta["namespace"],
            "uid": str(uuid.uuid4()),
            "creationTimestamp": format_rfc3339(now),
            "labels": labels,
            "annotations": notes,
            "finalizers": [TRACKED],
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": name,
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _set_condition(
    status: Json, kind: str, value: str, reason: str, now: float, *, message: str = ""
) -> None:
    """Put one condition; an equal one keeps its time."""
    others = [row for row in status.get("conditions", []) if row["type"] != kind]
    same = [
        row
        for row in status.get("conditions", [])
        if row["type"] == kind and row["status"] == value
    ]
    new = {
        "type": kind,
        "status": value,
        "reason": reason,
        "lastTransitionTime": format_rfc3339(now),
    }
    new |= {"message": message} if message else {}
    status["conditions"] = [*others, *(same or [new])]


def _order_key(pod: Json) -> tuple[int, str]:
    index = pods.index_of(pod)
    return (-1 if index is None else index, json_tree.object_id(pod))
