"""A snapshot of two nodes in whose namespace quotas come and go."""

from types import SimpleNamespace

from laxity_k8s.cluster_api import Json, Kind
from laxity_k8s.objects.jobs import NO_REPORT
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.snapshot import Snapshot
from laxity_scheduler.model.cluster import ClusterState
from tests.support.empty_cluster import Nothing
from tests.support.manifests import CREATED_AT, node


class Place:
    """A snapshot of two nodes with four GPUs each, in whose namespace quotas may come and go."""

    def __init__(self, *things: Json) -> None:
        self.cache, self.revision = ClusterCache(Nothing(), lambda: None), 10  # type: ignore[arg-type]
        self.quotas = SimpleNamespace(found=((), ()))
        self.snapshot = Snapshot(
            self.cache, lambda _: NO_REPORT, fit_within_s=60.0,
            quotas=self.quotas,  # type: ignore[arg-type]
        )  # fmt: skip
        self.put(node("a"), node("b"), *things)

    def put(self, *things: Json) -> None:
        for thing in things:
            self.revision += 1
            meta = {**thing["metadata"], "resourceVersion": str(self.revision)}
            kind: Kind = f"{thing['kind'].lower()}s"  # type: ignore[assignment]
            self.cache.put_object(kind, {**thing, "metadata": meta})

    def look(self, *quotas: Json, ranges: tuple[Json, ...] = ()) -> ClusterState:
        self.quotas.found = (quotas, ranges)
        with self.cache.take_dirty() as (touched, nodes):
            return self.snapshot.take_state(touched, nodes=nodes, now=CREATED_AT + 10.0, cycle=1)

    @property
    def words(self) -> str:
        return self.snapshot.bad["default/job"].problems[0]
