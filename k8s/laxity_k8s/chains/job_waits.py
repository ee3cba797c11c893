"""Why a link's Job waits, in the words of whoever knows: its queue, its scheduler, its controller."""

import time
from collections.abc import Iterable
from typing import Final

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods as pod_fields
from laxity_k8s.objects.controller_events import pod_refusal

UNANSWERED_S: Final = 30.0  # a scheduler takes less
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"


def suspension_words(job: Json) -> str:
    """Empty where the Job is not suspended."""
    if json_tree.get_in(job, "spec", "suspend") is not True:
        return ""
    queue = json_tree.labels_of(job).get(QUEUE_LABEL, "")
    return f"Kueue has not admitted it to {queue} yet" if queue else "it is suspended"


def pod_words(pods: Iterable[Json]) -> str:
    """Why the first of its pods that waits has not begun; empty where none waits."""
    waiting = (pod for pod in pods if pod_fields.phase_of(pod) == "Pending")
    return next((words for pod in waiting if (words := _words_of(pod))), "")


def _words_of(pod: Json) -> str:
    is_new = time.time() < pod_fields.created_at(pod) + UNANSWERED_S
    return pod_fields.waits_for(pod) or ("" if is_new else pod_fields.unanswered(pod))


def controller_words(events: Iterable[Json]) -> str:
    """Why the Job has no pod: its last warning; empty without any."""
    refusal = pod_refusal(events)
    return f"no pod can be created: {refusal}" if refusal else ""
