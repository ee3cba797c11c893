"""What the containers of a Pod have come to: how they ended, and what they wait for.

Init containers run before the training, those with `restartPolicy: Always` beside it. Where a pod has
`restartPolicy: OnFailure` its kubelet starts a container that failed again, and the pod still runs.
"""

from laxity import json_tree
from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json
from laxity_scheduler.model.reasons import format_utc

INITIALIZING = "PodInitializing"  # what a container says that waits for init containers
BEING_MADE = (INITIALIZING, "ContainerCreating")


def end_of(status: Json) -> Json:
    """How a container ended; of one that waits to be started again, how it ended last."""
    if json_tree.get_in(status, "state", "running") is not None:
        return {}
    ended = json_tree.mapping_at(status, "state", "terminated")
    return ended or json_tree.mapping_at(status, "lastState", "terminated")


def failed_end(pod: Json) -> tuple[str, Json]:
    """How the training failed, or else an init container, with its name; ("", {}) if none did."""
    for status in json_tree.list_at(pod, "status", "containerStatuses"):
        if end_of(status).get("exitCode"):
            return "", end_of(status)
    for status in json_tree.list_at(pod, "status", "initContainerStatuses"):
        if end_of(status).get("exitCode"):
            return str(status.get("name")), end_of(status)
    return "", {}


def end_instant(pod: Json) -> float:
    """When a container of the training ended, or an init container failed; 0 if none has."""
    training = json_tree.list_at(pod, "status", "containerStatuses")
    for end in (*map(end_of, training), failed_end(pod)[1]):
        if (ended_at := instant_at(end.get("finishedAt"))) is not None:
            return ended_at
    return 0.0


def count_restarts(pod: Json) -> int:
    """How often its kubelet has started a container again that fails; 0 while the training runs."""
    training = json_tree.list_at(pod, "status", "containerStatuses")
    if any(json_tree.get_in(status, "state", "running") is not None for status in training):
        return 0
    every = [*json_tree.list_at(pod, "status", "initContainerStatuses"), *training]
    counts = (status.get("restartCount") or 0 for status in every if end_of(status).get("exitCode"))
    return max(counts, default=0)


def what_it_waits_for(pod: Json) -> str:
    """What keeps its training from beginning, in the kubelet's words where it has some."""
    before = {
        str(json_tree.get_in(row, "name"))
        for row in json_tree.list_at(pod, "spec", "initContainers")
        if json_tree.get_in(row, "restartPolicy") != "Always"
    }
    first = json_tree.list_at(pod, "status", "initContainerStatuses")
    words = [_waiting_text(status) for status in first]
    words += [_init_text(status) for status in first if status.get("name") in before]
    training = json_tree.list_at(pod, "status", "containerStatuses")
    return next(filter(None, [*words, *map(_waiting_text, training)]), _initializing(training))


def is_held_up(pod: Json) -> bool:
    """Whether the kubelet says of a container what keeps it, other than that it is being made."""
    return any(
        json_tree.get_in(status, "state", "waiting", "reason") not in (None, "", *BEING_MADE)
        for field in ("initContainerStatuses", "containerStatuses")
        for status in json_tree.list_at(pod, "status", field)
    )


def _waiting_text(status: Json) -> str:
    waiting = json_tree.mapping_at(status, "state", "waiting")
    if waiting.get("reason") in (None, "", INITIALIZING):
        return ""
    detail = f": {waiting['message']}" if waiting.get("message") else ""
    return f"{waiting['reason']}{detail}"


def _init_text(status: Json) -> str:
    """That the training waits for this init container."""
    named = f"init container {status.get('name')}"
    since = instant_at(json_tree.get_in(status, "state", "running", "startedAt"))
    if since is not None:
        return f"{named} has been running since {format_utc(since)}"
    code = end_of(status).get("exitCode")
    return f"{named} failed with exit code {code}" if code else ""


def _initializing(training: list[Json]) -> str:
    waits = (json_tree.get_in(status, "state", "waiting", "reason") for status in training)
    return next((str(word) for word in waits if word), "")
