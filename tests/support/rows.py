"""A Job as JSON, read as its row."""

from collections.abc import Mapping
from typing import Any

from laxity.instants import format_rfc3339
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.jobs import job_row
from laxity_scheduler.live import Report
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job


def row(made: Json, pods: tuple[Json, ...] = (), report: Report | None = None, **more: Any) -> Job:
    found = job_row(made, pods, report or Report(), **more)
    assert isinstance(found, Job), found
    return found


def new_row(manifest: Mapping[str, Any], state: ClusterState, *, gpus_per_worker: int = 1) -> Job:
    """A Job that is created now, on this cluster."""
    created = {**manifest["metadata"], "creationTimestamp": format_rfc3339(state.now)}
    return row({**manifest, "metadata": created}, largest=state.total_gpus // gpus_per_worker)
