"""The pod whose posts are the progress of a script's Job: that of worker 0, as it is seen now."""

from collections.abc import Iterable

from laxity import json_tree, names
from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_profiler.history.script_posts import ScriptPod


def find_script_pod(job: Json, own: Iterable[Json], name: str) -> ScriptPod | None:
    """The pod of this name, or of any for ""; None if another one speaks for the Job.

    Pods without an index are all alike: the oldest that runs on speaks for them.
    """
    leaders = [pod for pod in own if not pods.index_of(pod)]
    live = [pod for pod in leaders if not pods.is_finished(pod)]
    if live:
        leader = min(live, key=lambda pod: (pods.is_terminating(pod), *_age(pod)))
    else:
        leader = max(leaders, key=_age, default={})
    found = str(json_tree.get_in(leader, "metadata", "name") or "")
    if not found or name not in ("", found):
        return None
    spec, notes = json_tree.mapping_at(job, "spec"), json_tree.annotations_of(job)
    is_ordered = bool(spec.get("suspend")) or names.STOP in notes
    return ScriptPod(
        found,
        _began_at(leader),
        restarts=pods.count_of(_container_status(leader).get("restartCount")),
        width=max(1, pods.count_of(spec.get("parallelism", 1))),
        resumes=notes.get(names.RESUMES) == "true",
        is_told_to_stop=is_ordered or pods.is_terminating(leader),
    )


def _age(pod: Json) -> tuple[float, str]:
    return pods.created_at(pod), json_tree.object_id(pod)


def _container_status(pod: Json) -> Json:
    """That of the container that trains, the first of the pod's spec."""
    name = json_tree.get_in(pod, "spec", "containers", 0, "name")
    rows = json_tree.list_at(pod, "status", "containerStatuses")
    return next((row for row in rows if row.get("name") == name), {})


def _began_at(pod: Json) -> float:
    """When that container started."""
    state = json_tree.mapping_at(_container_status(pod), "state")
    for kind in ("running", "terminated"):
        began_at = instant_at(json_tree.get_in(state, kind, "startedAt"))
        if began_at is not None:
            return began_at
    return pods.created_at(pod)
