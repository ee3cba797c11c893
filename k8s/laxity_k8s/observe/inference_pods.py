"""What inference needs of its nodes, as the pods on them show it.

Nodes labelled `laxity.dev/pool` inference, or loaned while they are lent, are its fleet. It needs the
GPUs of all pods there that are not laxity's, and of those without a node that can go nowhere else.
Where no node has such a label there is no demand, and nothing is lent.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from laxity import json_tree
from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects import pods
from laxity_k8s.objects.jobs import is_managed
from laxity_k8s.objects.node_rows.node_constraints import Asks, asks_of, is_suited
from laxity_k8s.objects.node_rows.pool_label import POOL
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_scheduler.loans.demand_history import DemandHistory
from laxity_scheduler.loans.inference_waits import InferencePod, InferenceWaits
from laxity_scheduler.model.cluster import FLEET_POOLS, InferenceDemand, Node
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.service_clock import CLOCK

RECLAIM_S: Final = 600.0  # head-room may be missing so long; GPUs of pods that wait may not at all


class InferencePods:
    """GPUs by group of pods that belong to the fleet; patched with what changed since the last look."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache, self._guard = cache, Guard("observation")
        self.history = DemandHistory()
        self.waits = InferenceWaits(CLOCK.now())
        self._fleet: dict[str, Json] = {}  # as they are labelled when nothing is lent
        self._gpus: dict[str, int] = {}  # by group
        self._largest: dict[str, int] = {}  # pod of each group
        self._bound_here: dict[Asks, bool] = {}
        self._wanted_since: float | None = None
        self._short_since: float | None = None
        self._stopped_until = 0.0

    @property
    def due_at(self) -> float:
        """When the demand changes by itself."""
        return self.history.slot_end_at if self._fleet else FOREVER

    def stop_lending(self, until: float = FOREVER) -> None:
        """Lend nothing more until then; what is lent goes back when it is wanted."""
        self._stopped_until = max(self._stopped_until, until)

    def update_nodes(self, nodes: Mapping[str, Json]) -> None:
        """Labels or taints of nodes changed: count all pods anew."""
        self._fleet = {
            name: _as_returned(node)
            for name, node in nodes.items()
            if json_tree.labels_of(node).get(POOL) in FLEET_POOLS
        }
        self._bound_here.clear()
        self._gpus.clear()
        self._largest.clear()
        if self._fleet:
            self.update_groups(tuple(self._cache.pods_of))
        else:
            self.waits.clear()
            self._wanted_since = self._short_since = None

    def update_groups(self, groups: Iterable[str]) -> None:
        """Count the pods of these groups anew."""
        for group in groups if self._fleet else ():
            own = self._guard(f"inference pods {group}", self._find_pods, group) or []
            counts = [pods.count_gpus(pod) for pod in own]
            self.waits.update_group(group, map(_wait_of, own))
            for table, count in (
                (self._gpus, sum(counts)),
                (self._largest, max(counts, default=0)),
            ):
                table.pop(group, None)
                if count:
                    table[group] = count

    def demand(self, nodes: Iterable[Node], now: float) -> InferenceDemand | None:
        """What the fleet needs; None if there is none."""
        if not self._fleet:
            return None
        lent = [node for node in nodes if node.pool in FLEET_POOLS]
        own_gpus = sum(node.gpus for node in lent if node.pool == "inference")
        if not lent:
            return None
        needed = sum(self._gpus.values())
        self.history.add(needed, now)
        forecast = self.history.forecast_gpus(max(self._largest.values(), default=1))
        return InferenceDemand(
            needed_gpus=needed,
            forecast_gpus=forecast,
            horizon_at=self.history.horizon_at if now >= self._stopped_until else 0.0,
            reclaim_by=self._reclaim_by(needed, forecast, own_gpus, now),
            outlook=self.history.outlook(),
        )

    def _reclaim_by(self, needed: float, forecast: float, own_gpus: int, now: float) -> float:
        """At once if pods lack GPUs; in a while if only head-room is missing."""
        if forecast <= own_gpus:
            self._wanted_since = self._short_since = None
            return FOREVER
        if self._wanted_since is None:
            self._wanted_since = now
        if needed <= own_gpus:
            self._short_since = None
            return self._wanted_since + RECLAIM_S
        if self._short_since is None:
            self._short_since = now
        return self._short_since

    def _find_pods(self, group: str) -> list[Json]:
        """The pods of a group that belong to the fleet."""
        if is_managed(self._cache.jobs.get(group, {})):
            return []
        own = self._cache.pods_of.get(group, {}).values()
        return [pod for pod in own if self._is_on_fleet(pod)]

    def _is_on_fleet(self, pod: Json) -> bool:
        if pods.is_finished(pod) or not pods.count_gpus(pod):
            return False
        node = pods.target_node_of(pod)
        if node:
            return node in self._fleet
        return not pods.is_terminating(pod) and self._goes_nowhere_else(asks_of(pod))

    def _goes_nowhere_else(self, asks: Asks) -> bool:
        """Whether pods that ask so may go to nodes of the fleet, and to no others."""
        answer = self._bound_here.get(asks)
        if answer is None:
            others = (node for name, node in self._cache.nodes.items() if name not in self._fleet)
            answer = any(is_suited(asks, node) for node in self._fleet.values()) and not any(
                is_suited(asks, node) for node in others
            )
            self._bound_here[asks] = answer
        return answer


def _wait_of(pod: Json) -> InferencePod:
    return InferencePod(
        str(json_tree.get_in(pod, "metadata", "uid")),
        instant_at(json_tree.get_in(pod, "metadata", "creationTimestamp")) or 0.0,
        pods.bound_at(pod),
    )


def _as_returned(node: Json) -> Json:
    """The node with the label that it has when it is not lent: pods may select it by that."""
    metadata = {**node["metadata"], "labels": {**json_tree.labels_of(node), POOL: "inference"}}
    return {**node, "metadata": metadata}
