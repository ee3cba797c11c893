"""What a Node says of itself: ready, cordoned, in trouble; and the nodes that a Job was sent to."""

import json
from typing import Final

from laxity import names
from laxity.instants import instant_at
from laxity_k8s import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_constraints import KEEPS_OFF, PASSING

MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"


def is_usable(node: Json) -> bool:
    """Ready, and open for new pods."""
    return not is_cordoned(node) and is_ready(node) and not _is_in_trouble(node)


def is_cordoned(node: Json) -> bool:
    """Whether somebody is about to empty it: `kubectl cordon` and `kubectl drain` say so."""
    return bool(json_tree.get_in(node, "spec", "unschedulable"))


def _is_in_trouble(node: Json) -> bool:
    """Whether Kubernetes itself keeps new pods off it (a full disk, no network), for a while."""
    return any(
        str(taint.get("key")).startswith(PASSING) and taint.get("effect") in KEEPS_OFF
        for taint in json_tree.list_at(node, "spec", "taints")
        if taint.get("key") != MEMORY_PRESSURE  # pods that ask for resources tolerate it
    )


def is_ready(node: Json) -> bool:
    return unready_at(node) is None


def unready_at(node: Json) -> float | None:
    """Since when a node is not ready; None if it is, -inf if it does not say since when."""
    for row in json_tree.list_at(node, "status", "conditions"):
        if row.get("type") == "Ready" and row.get("status") != "True":
            since = instant_at(row.get("lastTransitionTime"))
            return float("-inf") if since is None else since
    return None


def read_assigned_nodes(job: Json) -> tuple[str, ...]:
    """The nodes a Job was last sent to, one per worker index; () if there is no such word."""
    try:
        nodes = json.loads(json_tree.annotations_of(job).get(names.NODES, "[]"))
    except ValueError:
        return ()
    return tuple(str(name) for name in nodes) if isinstance(nodes, list) else ()
