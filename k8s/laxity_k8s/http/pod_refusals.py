"""Why a Job's pods do not run, in words that stand in Events alone.

Its controller writes there why the API server refuses pods, the kubelet what it cannot mount.
"""

from collections.abc import Callable, Coroutine, Iterable
from operator import itemgetter
from typing import Any

from laxity import json_tree
from laxity_k8s.cluster_api import ApiError, Json
from laxity_k8s.http.paths import collection_path, whole_items
from laxity_k8s.http.session import ApiSession
from laxity_k8s.objects.controller_events import pod_refusal, volume_failure
from laxity_k8s.objects.pods import index_of, is_being_made, node_of
from laxity_k8s.objects.status_annotation import read_status

RunCall = Callable[[Callable[[ApiSession], Coroutine[Any, Any, Json]]], Json]


def read_missing_pods(run_call: RunCall, job: Json, own: Iterable[Json]) -> str:
    """What keeps this Job's pods since its last start; "" if no Event says it, or none can be read.

    Where a pod hangs while its containers are made, that is asked about it; else about the Job.
    `run_call` makes one call over an open session.
    """
    hanging = {index_of(pod) or 0: pod for pod in own if is_being_made(pod)}
    if hanging:
        number, pod = min(hanging.items(), key=itemgetter(0))
        words = volume_failure(_warnings_about(run_call, pod))
        return f"worker {number} waits on {node_of(pod)}: {words}" if words else ""
    started_at = int(read_status(job).resumed_at or 0.0)  # Events have whole seconds
    controllers = [
        event
        for event in _warnings_about(run_call, job)
        if json_tree.get_in(event, "reason") == "FailedCreate"
    ]
    return pod_refusal(controllers, since=started_at)


def _warnings_about(run_call: RunCall, thing: Json) -> tuple[Json, ...]:
    """Warning Events about a Job or a Pod; none where they cannot be read."""
    path = collection_path("events", str(thing["metadata"]["namespace"]))
    query = {"fieldSelector": f"involvedObject.uid={thing['metadata'].get('uid')},type=Warning"}
    try:
        answer = run_call(
            lambda session: session.call_json("GET", path, query=query, timeout_s=5.0, attempts=1)
        )
    except ApiError:
        return ()
    return whole_items("events", answer)
