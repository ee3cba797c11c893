"""Workers that lose their place: drained with their node, or preempted by the cluster's scheduler.

Their pods are made anew, and the scheduler puts them where there is room. Only where it finds none the
Job has to move. This is the one place that judges such workers.
"""

from collections.abc import Iterable
from typing import Final

from laxity import json_tree
from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs, pods
from laxity_k8s.objects.conditions import find_condition
from laxity_k8s.objects.status_annotation import read_status
from laxity_scheduler.model.job import FOREVER

UNSCHEDULABLE_S: Final = 10.0  # so long the cluster's scheduler may find no node for a pod


def without_place(job: Json, own: Iterable[Json], *, ran: bool) -> dict[int, str]:
    """Workers that had a node and for which none is found now, in words, by their numbers.

    All had one if all of them `ran`. A service that started since has not seen that: then it is
    those whose pod was made after the pods of the start.
    """
    width, started_at = jobs.current_width(job), _pods_started_at(job)
    return {
        number: f"worker {number} has lost its place and {pods.waits_for(pod)}"
        for number, pod in _find_newest(job, own).items()
        if number < width
        and _unschedulable_since(pod) < FOREVER
        and (ran or jobs.creation_instant(pod) > started_at + UNSCHEDULABLE_S)
    }


def _pods_started_at(job: Json) -> float:
    """When the job controller began to make the pods of this start or width."""
    started_at = instant_at(json_tree.get_in(job, "status", "startTime")) or FOREVER
    return max(started_at, read_status(job).width_changed_at or 0.0)


def unschedulable_since(job: Json, own: Iterable[Json]) -> float:
    """Since when the cluster's scheduler finds no node for a worker, FOREVER if it has for all.

    A pod that others are being preempted for has its node as good as found.
    """
    width, newest = jobs.current_width(job), _find_newest(job, own)
    times = [_unschedulable_since(pod) for number, pod in newest.items() if number < width]
    return min(times, default=FOREVER)


def find_placeless(job: Json, own: Iterable[Json], now: float) -> set[int]:
    """Workers, by number, for which the cluster's scheduler has found no node in its time."""
    newest = _find_newest(job, own)
    return {
        number
        for number, pod in newest.items()
        if _unschedulable_since(pod) + UNSCHEDULABLE_S <= now
    }


def lacks_overdue(job: Json, own: Iterable[Json], now: float) -> bool:
    """Whether a worker is missing whose pod cannot end: no other pod takes its place."""
    width, newest = jobs.current_width(job), _find_newest(job, own)
    return any(number < width and pods.is_overdue(pod, now) for number, pod in newest.items())


def _find_newest(job: Json, own: Iterable[Json]) -> dict[int, Json]:
    """The pod of each worker that was made last."""
    numbered = jobs.pods_by_number(job, own)
    return dict(sorted(numbered, key=lambda one: str(one[1]["metadata"].get("creationTimestamp"))))


def _unschedulable_since(pod: Json) -> float:
    if (
        pods.node_of(pod)
        or pods.is_terminating(pod)
        or json_tree.get_in(pod, "status", "nominatedNodeName")
    ):
        return FOREVER
    scheduled = find_condition(pod, "PodScheduled")
    if scheduled.get("reason") != "Unschedulable":
        return FOREVER
    return instant_at(scheduled.get("lastTransitionTime")) or 0.0
