"""Which node a waiting pod of the local cluster goes to.

A pod goes where its Job was told to go (one node per worker index, in an annotation); where there
is no word, or no room, to the fullest node that its node selector, its node affinity and its
tolerations allow and that still holds it.
"""

from collections.abc import Iterable, Mapping

from laxity_k8s import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects import pods
from laxity_k8s.objects.accelerator_nodes import offers
from laxity_k8s.objects.affinity import node_names_for
from laxity_k8s.objects.node_constraints import asks_of, suits
from laxity_k8s.objects.nodes import assigned_nodes, usable


def bindings(
    waiting: Iterable[Json],
    placed: Iterable[Json],
    nodes: Iterable[Json],
    jobs: Mapping[str, Json],
    guard: Guard,
) -> dict[str, str]:
    """Node by pod id, for all waiting pods that have room; oldest first, then lowest index.

    A pod that cannot be read is the guard's.
    """
    there = {json_tree.identity(node): node for node in nodes if usable(node)}
    free = {name: sum(offers(node).values()) for name, node in there.items()}
    for pod in placed:
        if pods.node(pod) in free and not pods.is_finished(pod):
            free[pods.node(pod)] -= pods.gpus(pod)
    node_of: dict[str, str] = {}
    for pod in sorted(waiting, key=_turn):
        node = guard(json_tree.identity(pod), _choice, pod, free, there, jobs)
        if node is not None:
            free[node] -= pods.gpus(pod)
            node_of[json_tree.identity(pod)] = node
    return node_of


def _choice(
    pod: Json, free: Mapping[str, int], there: Mapping[str, Json], jobs: Mapping[str, Json]
) -> str | None:
    may, needed, index, asks = node_names_for(pod), pods.gpus(pod), pods.index(pod), asks_of(pod)
    open_nodes = [
        name
        for name in free
        if free[name] >= needed and (may is None or name in may) and suits(asks, there[name])
    ]
    job = jobs.get(pods.owner(pod)[0])
    wanted = assigned_nodes(job) if job is not None else ()
    if index is not None and index < len(wanted) and wanted[index] in open_nodes:
        return wanted[index]
    return min(open_nodes, key=lambda name: (free[name], name), default=None)


def _turn(pod: Json) -> tuple[str, int, str]:
    index = pods.index(pod)
    created = str(json_tree.dig(pod, "metadata", "creationTimestamp"))
    return created, -1 if index is None else index, json_tree.identity(pod)
