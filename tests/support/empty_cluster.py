"""A cluster that has nothing to tell, and what a service has seen of it."""

from typing import Any

from laxity_k8s.cluster_api import Json, Listing
from laxity_k8s.objects.jobs import NO_REPORT
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.snapshot import Snapshot
from laxity_scheduler.model.cluster import ClusterState


class Nothing:
    """A cluster without objects and without news."""

    def list(self, kind: str) -> Listing:
        return Listing((), "0")

    def watch(self, kind: str, **_: object) -> None:
        return None


class Observed:
    """What a service has seen: nothing, until a test puts things there."""

    def __init__(self, **options: Any) -> None:
        self.cache, self.revision = ClusterCache(Nothing(), lambda: None), 10  # type: ignore[arg-type]
        given = {"fit_within_s": 60.0, **options}
        self.snapshot = Snapshot(self.cache, lambda _: NO_REPORT, **given)

    def put(self, *things: Json) -> None:
        for thing in things:
            self.revision += 1
            meta = {**thing["metadata"], "resourceVersion": str(self.revision)}
            kind: Any = f"{thing['kind'].lower()}s"
            self.cache.put_object(kind, {**thing, "metadata": meta})

    def observe(self, now: float) -> ClusterState:
        with self.cache.take_dirty() as (touched, nodes):
            return self.snapshot.take_state(touched, nodes=nodes, now=now, cycle=1)
