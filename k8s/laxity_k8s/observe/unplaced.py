"""GPUs that are taken while nobody can say on which node: they are busy all the same.

The watches of Jobs and Pods are two streams, and drift apart when one is cut. A Job may count
workers whose pods are not seen yet (those scaled away, too), and a pod of a Job that may go to
several nodes may sit where room was kept for another, who then goes elsewhere. Free is what both
call free, so a cluster's busy GPUs are the maximum of what its Jobs and its Pods say. The job
controller comes behind, too: until it has seen a suspension it may start the workers of that Job.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs, pods
from laxity_k8s.objects.controller_seen import may_come
from laxity_scheduler.model.cluster import Node

ENDED = ("succeeded", "failed")


@dataclass(frozen=True, slots=True)
class Unplaced:
    """GPUs on one or some nodes: on these, as far as there is room, else `elsewhere`, on any."""

    gpus: int
    nodes: frozenset[str]
    elsewhere: bool = True


def count_unseen(job: Json, own: Sequence[Json], sent: int) -> int:
    """Workers that a Job counts and that are neither seen on a node nor awaited on one.

    `sent` workers are awaited. A pod without a node holds nothing if it may stay; one that has to
    go is not seen again once it is bound, so it counts. So does a second one of the same index,
    which a job controller may make that has not seen its own first.
    """
    wide = jobs.current_width(job)
    alive = [
        (index, pod) for index, pod in jobs.pods_by_number(job, own) if not pods.is_finished(pod)
    ]
    bound = [index for index, pod in alive if pods.node_of(pod)]
    waiting = {
        index
        for index, pod in alive
        if not pods.node_of(pod) and not pods.is_terminating(pod) and index < wide
    } - set(bound)
    held = max(count_unplaced(job, own), len(alive), may_come(job))
    return max(0, held - len(bound) - max(len(waiting), sent))


def count_unplaced(job: Json, own: Sequence[Json]) -> int:
    """Workers that hold GPUs by the Job's status, less those seen to end since it was written."""
    status = json_tree.mapping_at(job, "status")
    counted = pods.count_of(status.get("active")) + pods.count_of(status.get("terminating"))
    ended = sum(pods.is_finished(pod) and not pods.is_terminating(pod) for pod in own)
    ended_count = sum(
        pods.count_of(status.get(how))
        + len(json_tree.list_at(status, "uncountedTerminatedPods", how))
        for how in ENDED
    )
    return counted - max(0, ended - ended_count)


def set_aside(nodes: Mapping[str, Node], unplaced: Iterable[Unplaced]) -> Mapping[str, Node]:
    """The nodes with so many free GPUs less: of those that they were meant for, else of any; the freest.

    The freest first, as the cluster's scheduler spreads pods that have a choice.
    """
    free = {name: max(0, node.free_gpus) for name, node in nodes.items()}
    for item in unplaced:
        left = _take_gpus(free, item.nodes & free.keys(), item.gpus)
        if left and item.elsewhere:
            _take_gpus(free, free, left)
    return {
        name: node if node.free_gpus <= free[name] else replace(node, free_gpus=free[name])
        for name, node in nodes.items()
    }


def _take_gpus(free: dict[str, int], names: Iterable[str], gpus: int) -> int:
    """Take them from the freest of these nodes; how many were not to be had."""
    for name in sorted(names, key=lambda name: (-free[name], name)):
        taken = min(gpus, free[name])
        free[name] -= taken
        gpus -= taken
        if not gpus:
            break
    return gpus
