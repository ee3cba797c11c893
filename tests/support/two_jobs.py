"""Acts on two Jobs of a cluster, and what they are told."""

from laxity import json_tree, names
from laxity_k8s.cluster_api import Json
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects import status_annotation
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from tests.support.breaking import BAD, named
from tests.support.manifests import EVER_SUSPENDED, job

WHY = reason("order", policy="test")


def running(name: str) -> Json:
    """A Job with a worker that was sent to node b."""
    state = status_annotation.JobStatusRecord(
        resumed_at=1.0, width_changed_at=1.0, wanted=1, terms="x"
    )
    made = named(job(name, suspend=False, nodes='["b"]', status=EVER_SUSPENDED))
    return with_state(made, state)


def with_state(made: Json, state: status_annotation.JobStatusRecord) -> Json:
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    return made


def ids(state: ClusterState) -> list[str]:
    return [row.id for row in state.jobs]


def admit(world: LiveCluster, *jobs: str) -> None:
    world.carry_out(Plan(tuple(Admit(one, 1, ("a",), WHY) for one in jobs)))


def told(world: LiveCluster, job_id: str = BAD) -> str:
    return json_tree.annotations_of(world.api.get("jobs", job_id)).get(names.REASON, "")
