"""Nodes: ready, cordoned, in trouble; their rows; and the nodes that a Job was sent to."""

import json
from collections.abc import Mapping
from typing import Final

from laxity import json_tree, names
from laxity.instants import instant_at
from laxity.job.accelerators import GPU
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.accelerator_nodes import count_offered, site_name
from laxity_k8s.objects.conditions import find_condition
from laxity_k8s.objects.node_constraints import KEEPS_OFF, PASSING
from laxity_k8s.objects.pool_label import POOL
from laxity_scheduler.model.cluster import Node, Pool
from laxity_scheduler.model.job import FOREVER

PRODUCT = "nvidia.com/gpu.product"
UNREADY_S = 40.0  # Kubernetes gives a node as long before it calls it unknown
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"


def is_usable(node: Json) -> bool:
    """Ready, and open for new pods."""
    return not is_cordoned(node) and is_ready(node) and not _is_in_trouble(node)


def is_cordoned(node: Json) -> bool:
    """Whether somebody is about to empty it: `kubectl cordon` and `kubectl drain` say so.

    The taint that Kubernetes adds then goes a moment after the word does, and keeps pods off so long.
    """
    taints = json_tree.list_at(node, "spec", "taints")
    has_taint = any(taint.get("key") == UNSCHEDULABLE for taint in taints)
    return has_taint or bool(json_tree.get_in(node, "spec", "unschedulable"))


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
    ready = find_condition(node, "Ready")
    if not ready or ready.get("status") == "True":
        return None
    since = instant_at(ready.get("lastTransitionTime"))
    return float("-inf") if since is None else since


def loss_instant(node: Json) -> float:
    """When a node that is not ready counts as lost: a restarted kubelet is back before that."""
    since = unready_at(node)
    return FOREVER if since is None else since + UNREADY_S


def node_rows(node: Json, busy: Mapping[str, int], *, now: float = 0.0) -> list[Node]:
    """A machine that is there, once for each kind of accelerator; `busy` ones are by site.

    One not ready takes no new workers.
    """
    if loss_instant(node) <= now or json_tree.get_in(node, "metadata", "deletionTimestamp"):
        return []
    labels, name, has_room = json_tree.labels_of(node), json_tree.object_id(node), is_usable(node)
    pool: Pool = "cordoned" if is_cordoned(node) else _pool_of(labels.get(POOL, ""))
    return [
        Node(
            id=(mine := site_name(name, resource)),
            gpus=gpus,
            free_gpus=gpus - busy.get(mine, 0) if has_room else 0,
            gpu_type=labels.get(PRODUCT, "") if resource == GPU else resource,
            pool=pool,
        )
        for resource, gpus in count_offered(node).items()
    ]


def _pool_of(said: str) -> Pool:
    return said if said in {"training", "inference", "loaned"} else "training"  # type: ignore[return-value]


def read_assigned_nodes(job: Json) -> tuple[str, ...]:
    """The nodes a Job was last sent to, one per worker index; () if there is no such word."""
    try:
        nodes = json.loads(json_tree.annotations_of(job).get(names.NODES, "[]"))
    except ValueError:
        return ()
    return tuple(str(name) for name in nodes) if isinstance(nodes, list) else ()
