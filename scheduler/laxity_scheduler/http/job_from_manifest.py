"""A manifest as the row that policies would see, before the Job exists: for what-ifs.

A Job whose terms are wrong is rejected here, with every wrong field named. One that was created by
kubectl is read by the World instead, which refuses it on the Job itself.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from laxity.job.spec import TrainingSpec
from laxity.job.submission import counts_from
from laxity.job.widths import within
from laxity_profiler.estimate import Workload
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job

DEFAULT_WIDTHS: Final = (1, 2, 4, 8)  # what a job that names no widths may have


def job_from_manifest(manifest: Mapping[str, Any], state: ClusterState) -> Job:
    """The row of a new Job. QoSError names every field that is wrong."""
    spec = TrainingSpec.from_manifest(manifest)
    claimed_at = None if spec.submitted_at is None else spec.submitted_at.timestamp()
    most = state.total_gpus // spec.qos.gpus_per_worker
    return Job(
        id=spec.id,
        workload=Workload.of(spec),
        submitted_at=state.now,
        deadline_at=spec.qos.deadline_at(counts_from(claimed_at, state.now)),
        service_class=spec.qos.service_class,
        widths=within(spec.qos.widths or DEFAULT_WIDTHS, most),
        gpus_per_worker=spec.qos.gpus_per_worker,
        preemptible=spec.qos.preemptible,
        queued_at=state.now,
        since=state.now,
        on_miss=spec.qos.on_miss,
    )


def with_deadline(job: Job, deadline_at: float) -> Job:
    """The job as it would ask with another deadline."""
    service_class = "hard" if job.service_class == "best_effort" else job.service_class
    return replace(job, deadline_at=deadline_at, service_class=service_class, asked=True)
