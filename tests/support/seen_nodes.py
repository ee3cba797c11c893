"""What a service has seen of two nodes with four GPUs each."""

from laxity_k8s.cluster_api import Json
from laxity_scheduler.model.cluster import ClusterState
from tests.support.empty_cluster import Observed
from tests.support.manifests import CREATED_AT, node

NOW = CREATED_AT + 10.0


class Seen(Observed):
    """What a service has seen of two nodes with four GPUs each."""

    def __init__(self, *things: Json) -> None:
        super().__init__()
        self.put(node("a"), node("b"), *things)

    def look(self) -> ClusterState:
        return self.observe(NOW)

    def busy(self) -> dict[str, int]:
        return {one.id: one.gpus - one.free_gpus for one in self.look().nodes}
