"""GPUs that nobody else may have: of pods, of workers without a pod yet, freed for one job."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from laxity.job.accelerators import GPU
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.jobs import due_workers, pods_by_number
from laxity_k8s.objects.node_rows.accelerator_nodes import site_name
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_scheduler.model.cluster import HOLD_S, Hold
from laxity_scheduler.model.job import Job


def pods_busy(own: Iterable[Json], *, gpus_per_worker: int = 0) -> Counter[str]:
    """GPUs by site of pods that are not over: bound ones, also those that terminate, and nominated.

    What a pod of higher priority is nominated for is free only for that pod.
    """
    busy: Counter[str] = Counter()
    for pod in own:
        node = pods.target_node_of(pod)
        if node and not pods.is_finished(pod):
            for resource, gpus in (pods.accelerators_of(pod) or {GPU: 0}).items():
                busy[site_name(node, resource)] += max(gpus_per_worker, gpus)
    return busy


def gpus_reserved(
    job: Json,
    nodes: Sequence[str],
    gpus_per_worker: int,
    own: Iterable[Json],
    placeless: Collection[int] = (),
) -> Counter[str]:
    """GPUs by site for workers that were sent to `nodes` and have no pod for any node yet.

    Those that are `placeless`, by number, hold none: no node was found for them.
    """
    workers = pods_by_number(job, own)
    there = {
        index for index, pod in workers if pods.target_node_of(pod) and not pods.is_finished(pod)
    }
    done = {index for index, pod in workers if pods.phase_of(pod) == "Succeeded"}
    waiting: Counter[str] = Counter()
    for index, node in enumerate(nodes[: due_workers(job)]):
        if node and index not in there and index not in done and index not in placeless:
            waiting[node] += gpus_per_worker
    return waiting


def find_holds(victim: Job, state: JobStatusRecord, other: Job | None, now: float) -> list[Hold]:
    """GPUs that a stopped job freed for another one, until that has started or cannot be tried."""
    until_at = state.freed_at + HOLD_S
    if victim.workers or victim.terminating_workers or until_at <= now:
        return []
    if other is None or other.refused or other.not_before > now:
        return []
    if max(other.resumed_at or 0.0, other.width_changed_at or 0.0) >= state.freed_at:  # started
        return []
    return [
        Hold(other.id, node, workers * victim.gpus_per_worker, until_at)
        for node, workers in sorted(Counter(state.freed_nodes).items())
    ]
