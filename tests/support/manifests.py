"""Jobs, Pods and Nodes as JSON, with sane defaults."""

from collections.abc import Mapping
from typing import Any

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.pods import COMPLETION_INDEX

CREATED = "2026-11-21T08:00:00Z"
CREATED_AT = 1795248000.0
NOTHING: Mapping[str, str] = {}


def train_template(gpus: int = 1, **container: Any) -> Json:
    """A pod template whose one container asks for GPUs."""
    limits = {"nvidia.com/gpu": str(gpus)}
    worker = {"name": "train", "resources": {"limits": limits}, **container}
    return {"spec": {"restartPolicy": "Never", "containers": [worker]}}


def indexed_job(
    name: str,
    template: Json,
    said: Mapping[str, str] = NOTHING,
    *,
    namespace: str = "default",
    width: int = 1,
    labels: Mapping[str, str] | None = None,
    spec: Json | None = None,
) -> Json:
    """A managed Job as people write it, suspended; `said` are laxity's annotations, with _ for -."""
    noted = {f"{names.DOMAIN}/{key.replace('_', '-')}": text for key, text in said.items()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.MANAGED: "true"} if labels is None else {**labels},
            "annotations": noted,
        },
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "parallelism": width,
            "completions": width,
            "backoffLimit": 1000,
            "podReplacementPolicy": "Failed",
            "template": template,
            **(spec or {}),
        },
    }


def job(
    name: str = "job",
    *,
    width: int = 1,
    suspend: bool = True,
    gpus: int = 1,
    status: Json | None = None,
    spec: Json | None = None,
    labels: dict[str, str] | None = None,
    **said: str,
) -> Json:
    """One of ten epochs as an API server shows it; `said` as in `indexed_job`."""
    template = train_template(gpus, command=["python"])
    more = {"suspend": suspend, "backoffLimit": 6, **(spec or {})}
    noted = {"epochs": "10", **said}
    made = indexed_job(name, template, noted, width=width, labels=labels, spec=more)
    made["metadata"] |= {
        "uid": f"uid-of-{name}",
        "resourceVersion": "7",
        "creationTimestamp": CREATED,
    }
    return {**made, "status": status or {}}


def pod(
    index: int | None = 0,
    *,
    of: str = "job",
    node: str = "",
    phase: str = "Running",
    leaving: bool = False,
    code: int | None = None,
    ended: str = CREATED,
    tracked: bool = True,
    disrupted: bool = False,
    disruption: str = "EvictionByEvictionAPI",
    said: str = "",
    why: str = "Error",
    created: str = CREATED,
) -> Json:
    """A pod of a Job, by default running, with the finalizer that says it was not counted yet."""
    meta: Json = {
        "name": f"{of}-{index}-{phase.lower()}-{ended[-6:-1].replace(':', '')}",
        "namespace": "default",
        "uid": f"pod-{of}-{index}",
        "resourceVersion": "3",
        "creationTimestamp": created,
        "annotations": {} if index is None else {COMPLETION_INDEX: str(index)},
        "ownerReferences": [{"kind": "Job", "name": of, "uid": f"uid-of-{of}", "controller": True}],
    }
    if tracked:
        meta["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    if leaving:
        meta["deletionTimestamp"] = CREATED
    status: Json = {"phase": phase, "conditions": []}
    if phase == "Running":
        status["conditions"].append({"type": "Ready", "status": "True"})
    if disrupted:
        status["conditions"].append(
            {"type": "DisruptionTarget", "status": "True", "reason": disruption}
        )
    if code is not None:
        end = {"exitCode": code, "finishedAt": ended, "reason": why, "message": said}
        ending = {"terminated": end}
        status["containerStatuses"] = [{"name": "train", "state": ending}]
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec: Json = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def node(name: str = "n", gpus: int = 4, *, ready: bool = True, **more: Any) -> Json:
    state = "True" if ready else "False"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": more.pop("labels", {}), "resourceVersion": "1"},
        "spec": more,
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": state}],
        },
    }


SUSPENDED: Json = {"conditions": [{"type": "Suspended", "status": "True"}]}
EVER_SUSPENDED: Json = {
    "conditions": [{"type": "Suspended", "status": "False"}],
    "startTime": CREATED,
}
