"""Which node a waiting pod of the local cluster goes to.

A pod goes where its Job was told to go (one node per worker index, in an annotation); where there
is no word, or no room, to the fullest node that its node selector, its node affinity and its
tolerations allow and that still holds it.
"""

from collections.abc import Iterable, Mapping

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects import pods
from laxity_k8s.objects.node_rows.accelerator_nodes import count_offered
from laxity_k8s.objects.node_rows.affinity import held_nodes
from laxity_k8s.objects.node_rows.node_constraints import asks_of, is_suited
from laxity_k8s.objects.node_rows.nodes import is_usable, read_assigned_nodes
from laxity_k8s.objects.node_rows.pool_label import POOL


def find_bindings(
    waiting: Iterable[Json],
    placed: Iterable[Json],
    nodes: Iterable[Json],
    jobs: Mapping[str, Json],
    guard: Guard,
) -> dict[str, str]:
    """Node by pod id, for all waiting pods that have room; oldest first, then lowest index.

    A pod that cannot be read is the guard's.
    """
    there = {json_tree.object_id(node): node for node in nodes if _takes_workers(node)}
    free = {name: sum(count_offered(node).values()) for name, node in there.items()}
    for pod in placed:
        if pods.node_of(pod) in free and not pods.is_finished(pod):
            free[pods.node_of(pod)] -= pods.count_gpus(pod)
    node_of: dict[str, str] = {}
    for pod in sorted(waiting, key=_turn_key):
        node = guard(json_tree.object_id(pod), _choose_node, pod, free, there, jobs)
        if node is not None:
            free[node] -= pods.count_gpus(pod)
            node_of[json_tree.object_id(pod)] = node
    return node_of


def _takes_workers(node: Json) -> bool:
    """Whether it may be used, and inference keeps it not for itself."""
    return is_usable(node) and json_tree.labels_of(node).get(POOL) != "inference"


def _choose_node(
    pod: Json, free: Mapping[str, int], there: Mapping[str, Json], jobs: Mapping[str, Json]
) -> str | None:
    held, asks = held_nodes(pod), asks_of(pod)
    needed, index = pods.count_gpus(pod), pods.index_of(pod)
    open_nodes = [
        name
        for name in free
        if free[name] >= needed and name not in held and is_suited(asks, there[name])
    ]
    job = jobs.get(pods.owner_of(pod)[0])
    wanted = read_assigned_nodes(job) if job is not None else ()
    if index is not None and index < len(wanted) and wanted[index] in open_nodes:
        return wanted[index]
    return min(open_nodes, key=lambda name: (free[name], name), default=None)


def _turn_key(pod: Json) -> tuple[str, int, str]:
    index = pods.index_of(pod)
    created = str(json_tree.get_in(pod, "metadata", "creationTimestamp"))
    return created, -1 if index is None else index, json_tree.object_id(pod)
