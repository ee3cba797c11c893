"""Idle nodes on which near promises rest are marked, so that no autoscaler removes them; then unmarked.

Only marks that laxity has set are taken off: it writes beside them for which Job they are.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from laxity import json_tree, names
from laxity_k8s.cluster_api import FORBIDDEN, ClusterApi, Json, Patch
from laxity_k8s.objects.node_rows.accelerator_nodes import machine_name
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_scheduler.capacity.kept_nodes import find_kept_nodes
from laxity_scheduler.model.cluster import ClusterState

LOG: Final = logging.getLogger(__name__)
KEPT_FOR: Final = f"{names.DOMAIN}/kept-for"
MARKS: Final = (
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
)
NO_RIGHTS: Final = (
    "nodes that promises rest on are not marked against scale-down: laxity may not patch nodes; an "
    "administrator gives it that right with the component k8s/manifests/autoscaler"
)


class NodeMarks:
    """Marks nodes where `scales`: pools of the cluster may grow and shrink."""

    def __init__(self, api: ClusterApi, cache: ClusterCache, *, scales: bool) -> None:
        self._api, self._cache, self._scales = api, cache, scales

    def update(self, state: ClusterState) -> None:
        """Mark what is kept now, and unmark what is not; without the right, no more until a restart."""
        if self._scales:
            kept = find_kept_nodes(state)
            self._mark({machine_name(site): job for site, job in kept.items()})

    def clear(self) -> None:
        """Take all marks off that laxity has set."""
        if self._scales:
            self._mark({})

    def _mark(self, kept: Mapping[str, str]) -> None:
        with self._cache.lock:
            nodes = list(self._cache.nodes.items())
        patches = [_build_patch(name, node, kept.get(name, "")) for name, node in nodes]
        for outcome in self._api.patch_many([patch for patch in patches if patch is not None]):
            if outcome.ok and outcome.object is not None:
                self._cache.put_object("nodes", outcome.object)
            elif outcome.status == FORBIDDEN:
                self._scales = False
                LOG.warning("%s", NO_RIGHTS)


def _build_patch(name: str, node: Json, job: str) -> Patch | None:
    """None if it is marked as it should be, or by somebody else."""
    notes: Mapping[str, Any] = json_tree.annotations_of(node)
    is_ours = KEPT_FOR in notes
    if is_ours == bool(job) or (job and not notes.keys().isdisjoint(MARKS)):
        return None
    text = "true" if job else None
    wished = {**dict.fromkeys(MARKS, text), KEPT_FOR: job or None}
    return Patch("nodes", name, {"metadata": {"annotations": wished}})
