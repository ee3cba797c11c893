"""Why a Job has no pods, in the API server's words: its controller writes them into Events."""

from collections.abc import Callable, Coroutine
from typing import Any

from laxity import json_tree
from laxity_k8s.cluster_api import ApiError, Json
from laxity_k8s.http.paths import collection_path, whole_items
from laxity_k8s.http.session import ApiSession
from laxity_k8s.objects.controller_events import pod_refusal
from laxity_k8s.objects.status_annotation import read_status

RunCall = Callable[[Callable[[ApiSession], Coroutine[Any, Any, Json]]], Json]


def read_pod_refusal(run_call: RunCall, job: Json) -> str:
    """Of this Job since its last start; "" where nothing was refused, or Events cannot be read.

    `run_call` makes one call over an open session.
    """
    path = collection_path("events", str(job["metadata"]["namespace"]))
    query = {"fieldSelector": f"involvedObject.uid={job['metadata'].get('uid')},type=Warning"}
    try:
        answer = run_call(lambda session: session.call_json("GET", path, query=query))
    except ApiError:
        return ""
    started_at = int(read_status(job).resumed_at or 0.0)  # Events have whole seconds
    controllers = [
        event
        for event in whole_items("events", answer)
        if json_tree.get_in(event, "reason") == "FailedCreate"
    ]
    return pod_refusal(controllers, since=started_at)
