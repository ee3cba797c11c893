"""Nodes: ready, cordoned, in trouble; their rows; and the nodes that a Job was sent to."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from laxity import json_tree, names
from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.conditions import find_condition
from laxity_k8s.objects.node_rows.accelerator_nodes import count_offered, find_product, site_name
from laxity_k8s.objects.node_rows.node_constraints import KEEPS_OFF, PASSING
from laxity_k8s.objects.node_rows.pool_label import POOL
from laxity_scheduler.model.cluster import Node, Pool
from laxity_scheduler.model.job import FOREVER

UNREADY_S = 40.0  # Kubernetes gives a node as long before it calls it unknown
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
# Taints of a node that is not ready: they go a moment after it is ready again.
AWAY: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
NOBODY: Final[Mapping[str, int]] = MappingProxyType({})


def is_usable(node: Json) -> bool:
    """Ready, and open for new pods."""
    return not is_cordoned(node) and is_ready(node) and not _find_troubles(node)


def is_cordoned(node: Json) -> bool:
    """Whether somebody is about to empty it: `kubectl cordon` and `kubectl drain` say so.

    The taint that Kubernetes adds then goes a moment after the word does, and keeps pods off so long.
    A Node that is being deleted, and is still there, waits for whoever empties it.
    """
    taints = json_tree.list_at(node, "spec", "taints")
    has_taint = any(taint.get("key") == UNSCHEDULABLE for taint in taints)
    is_going = json_tree.get_in(node, "metadata", "deletionTimestamp")
    return has_taint or bool(is_going or json_tree.get_in(node, "spec", "unschedulable"))


def _find_troubles(node: Json) -> set[str]:
    """Taints by which Kubernetes itself keeps new pods off (a full disk, no network), for a while."""
    taints = json_tree.list_at(node, "spec", "taints")
    keys = {str(taint.get("key")) for taint in taints if taint.get("effect") in KEEPS_OFF}
    return {key for key in keys if key.startswith(PASSING)}


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


def node_rows(
    node: Json,
    busy: Mapping[str, int],
    *,
    now: float = 0.0,
    counts: Mapping[str, int] | None = None,
    others: Mapping[str, int] = NOBODY,
) -> list[Node]:
    """A machine that is there, once for each kind of accelerator; `busy` ones are by site.

    `counts` are those that it is counted on for, None: as it lists them; `others` are those of `busy`
    that no row of a Job explains. A machine that is not ready, or lists none for a moment, takes no new
    workers.
    """
    if loss_instant(node) <= now:
        return []
    listed, labels, name = count_offered(node), json_tree.labels_of(node), json_tree.object_id(node)
    pool: Pool = "cordoned" if is_cordoned(node) else _pool_of(labels.get(POOL, ""))
    troubles, has_room = _find_troubles(node), is_usable(node)
    named = sorted(key.partition("/")[2] for key in troubles - AWAY)
    lasting = "" if pool == "cordoned" else ", ".join(named)
    is_silent = not is_ready(node) or not troubles.isdisjoint(AWAY)
    rows = []
    for resource, gpus in (listed if counts is None else counts).items():
        site = site_name(name, resource)
        # pods of others on what it does not list any more take nothing from anybody
        idle = gpus - busy.get(site, 0) + max(0, others.get(site, 0) - gpus)
        is_away = (is_silent or resource not in listed) and pool != "cordoned"
        row = Node(
            id=site,
            gpus=gpus,
            free_gpus=idle if has_room and not is_away else min(0, idle),
            gpu_type=find_product(labels, resource)[1],
            pool=pool,
            away_gpus=max(0, idle) if is_away and troubles <= AWAY else 0,
            trouble=lasting if idle > 0 else "",
        )
        rows.append(row)
    return rows


def _pool_of(said: str) -> Pool:
    return said if said in {"training", "inference", "loaned"} else "training"  # type: ignore[return-value]


def read_assigned_nodes(job: Json) -> tuple[str, ...]:
    """The nodes a Job was last sent to, one per worker index; () if there is no such word."""
    try:
        nodes = json.loads(json_tree.annotations_of(job).get(names.NODES, "[]"))
    except ValueError:
        return ()
    return tuple(str(name) for name in nodes) if isinstance(nodes, list) else ()
