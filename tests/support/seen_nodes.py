"""What a service has seen of two nodes with four GPUs each."""

from typing import Any

from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.jobs import NO_REPORT
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.snapshot import Snapshot
from laxity_scheduler.model.cluster import ClusterState
from tests.support.empty_cluster import Nothing
from tests.support.manifests import CREATED_AT, node

NOW = CREATED_AT + 10.0


class Seen:
    """What a service has seen of two nodes with four GPUs each."""

    def __init__(self, *things: Json) -> None:
        self.cache = ClusterCache(Nothing(), lambda: None)  # type: ignore[arg-type]
        self.snapshot = Snapshot(self.cache, lambda _: NO_REPORT, fit_within_s=60.0)
        self.revision = 10
        self.put(node("a"), node("b"), *things)

    def put(self, *things: Json) -> None:
        for thing in things:
            self.revision += 1
            meta = {**thing["metadata"], "resourceVersion": str(self.revision)}
            kind: Any = f"{thing['kind'].lower()}s"
            self.cache.put_object(kind, {**thing, "metadata": meta})

    def look(self) -> ClusterState:
        with self.cache.take_dirty() as (touched, nodes):
            return self.snapshot.take_state(touched, nodes=nodes, now=NOW, cycle=1)

    def busy(self) -> dict[str, int]:
        return {one.id: one.gpus - one.free_gpus for one in self.look().nodes}
