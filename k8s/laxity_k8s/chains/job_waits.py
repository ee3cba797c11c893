"""Why a link's Job waits, in the words of whoever knows: its queue, its scheduler, its controller."""

import re
from collections.abc import Iterable
from typing import Final

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods as pod_fields

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_POD: Final = re.compile(r'^Error creating: pods "[^"]*" is forbidden: ')  # another name each time


def suspension_words(job: Json) -> str:
    """Empty where the Job is not suspended."""
    if json_tree.get_in(job, "spec", "suspend") is not True:
        return ""
    queue = json_tree.labels_of(job).get(QUEUE_LABEL, "")
    return f"Kueue has not admitted it to {queue} yet" if queue else "it is suspended"


def pod_words(pods: Iterable[Json]) -> str:
    """Why the first of its pods that waits has not begun; empty where none waits."""
    waiting = (pod for pod in pods if pod_fields.phase_of(pod) == "Pending")
    return next((words for pod in waiting if (words := pod_fields.waits_for(pod))), "")


def controller_words(events: Iterable[Json]) -> str:
    """Why the Job has no pod: its last warning; empty without any."""
    warnings = [event for event in events if json_tree.get_in(event, "type") == "Warning"]
    if not warnings:
        return ""
    refusal = _POD.sub("", str(max(warnings, key=_instant_text).get("message") or ""))
    return f"no pod can be created: {refusal}"


def _instant_text(event: Json) -> str:
    """As the API server writes it, in UTC: texts are in the order of their instants."""
    created_at = json_tree.get_in(event, "metadata", "creationTimestamp")
    return str(event.get("lastTimestamp") or event.get("eventTime") or created_at or "")
