"""Which node a waiting pod of the local cluster goes to.

A pod goes where its Job was told to go (one node per worker index, in an annotation); where there
is no word, or no room, to the fullest node that its node selector, its node affinity and its
tolerations allow and that still holds it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from laxity import names
from laxity.parsing import instant_at
from laxity_k8s import merge, pods
from laxity_k8s.api import Json
from laxity_k8s.asks import KEEPS_OFF, PASSING, asks_of, suits
from laxity_k8s.guard import Guard
from laxity_k8s.sites import offers

MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"


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
    there = {merge.identity(node): node for node in nodes if usable(node)}
    free = {name: sum(offers(node).values()) for name, node in there.items()}
    for pod in placed:
        if pods.node(pod) in free and not pods.over(pod):
            free[pods.node(pod)] -= pods.gpus(pod)
    found: dict[str, str] = {}
    for pod in sorted(waiting, key=_turn):
        node = guard(merge.identity(pod), _choice, pod, free, there, jobs)
        if node is not None:
            free[node] -= pods.gpus(pod)
            found[merge.identity(pod)] = node
    return found


def usable(node: Json) -> bool:
    """Ready, and open for new pods."""
    return not is_cordoned(node) and is_ready(node) and not _is_in_trouble(node)


def is_cordoned(node: Json) -> bool:
    """Whether somebody is about to empty it: `kubectl cordon` and `kubectl drain` say so."""
    return bool(merge.dig(node, "spec", "unschedulable"))


def _is_in_trouble(node: Json) -> bool:
    """Whether Kubernetes itself keeps new pods off it (a full disk, no network), for a while."""
    return any(
        str(taint.get("key")).startswith(PASSING) and taint.get("effect") in KEEPS_OFF
        for taint in merge.items(node, "spec", "taints")
        if taint.get("key") != MEMORY_PRESSURE  # pods that ask for resources tolerate it
    )


def is_ready(node: Json) -> bool:
    return unready_at(node) is None


def unready_at(node: Json) -> float | None:
    """Since when a node is not ready; None if it is, -inf if it does not say since when."""
    for one in merge.items(node, "status", "conditions"):
        if one.get("type") == "Ready" and one.get("status") != "True":
            since = instant_at(one.get("lastTransitionTime"))
            return float("-inf") if since is None else since
    return None


def told(job: Json) -> tuple[str, ...]:
    """The nodes a Job was last sent to, one per worker index; () if there is no such word."""
    try:
        found = json.loads(merge.annotations(job).get(names.NODES, "[]"))
    except ValueError:
        return ()
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def allowed(template: Json) -> frozenset[str] | None:
    """Names of the nodes that a pod or a template may go to; None if any will do."""
    terms = merge.items(
        template,
        "spec",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    )
    if not terms or not all(_names(term) for term in terms):
        return None
    return frozenset(name for term in terms for name in _names(term))


def _names(term: Mapping[str, Any]) -> list[str]:
    return [
        str(name)
        for field in term.get("matchFields", [])
        if field.get("key") == "metadata.name" and field.get("operator") == "In"
        for name in field.get("values", [])
    ]


def _choice(
    pod: Json, free: Mapping[str, int], there: Mapping[str, Json], jobs: Mapping[str, Json]
) -> str | None:
    may, needed, index, asks = allowed(pod), pods.gpus(pod), pods.index(pod), asks_of(pod)
    open_nodes = [
        name
        for name in free
        if free[name] >= needed and (may is None or name in may) and suits(asks, there[name])
    ]
    job = jobs.get(pods.owner(pod)[0])
    wanted = told(job) if job is not None else ()
    if index is not None and index < len(wanted) and wanted[index] in open_nodes:
        return wanted[index]
    return min(open_nodes, key=lambda name: (free[name], name), default=None)


def _turn(pod: Json) -> tuple[str, int, str]:
    index = pods.index(pod)
    created = str(merge.dig(pod, "metadata", "creationTimestamp"))
    return created, -1 if index is None else index, merge.identity(pod)
