"""A snapshot of two nodes in whose namespace quotas come and go."""

from types import SimpleNamespace

from laxity_k8s.cluster_api import Json
from laxity_scheduler.model.cluster import ClusterState
from tests.support.empty_cluster import Observed
from tests.support.manifests import CREATED_AT, node


class Place(Observed):
    """A snapshot of two nodes with four GPUs each, in whose namespace quotas may come and go."""

    def __init__(self, *things: Json) -> None:
        self.quotas = SimpleNamespace(found=((), ()))
        super().__init__(quotas=self.quotas)
        self.put(node("a"), node("b"), *things)

    def look(self, *quotas: Json, ranges: tuple[Json, ...] = ()) -> ClusterState:
        self.quotas.found = (quotas, ranges)
        return self.observe(CREATED_AT + 10.0)

    @property
    def words(self) -> str:
        return self.snapshot.bad["default/job"].problems[0]
