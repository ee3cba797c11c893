"""Idle nodes on which waiting promises rest that start soon: an autoscaler should not remove them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from laxity_scheduler.capacity.ledger import OWN, Ledger
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job

AHEAD_S: Final = 900.0  # autoscalers remove a node that was idle for 10 minutes, by default


def find_kept_nodes(state: ClusterState) -> Mapping[str, str]:
    """Idle nodes by name, and for which job each is kept: who starts first is placed first."""
    idle = [node for node in state.nodes if 0 < node.gpus == node.free_gpus]
    ledger = Ledger.of(replace(state, nodes=tuple(idle), holds=()), pools=OWN)
    kept: dict[str, str] = {}
    for _, job, workers in sorted(_find_starts(state), key=lambda start: (start[0], start[1].id)):
        may = state.eligible_nodes(job)
        fitting = min(workers, ledger.slots(job.gpus_per_worker, may, needs=job.needs))
        nodes = ledger.place(fitting, job.gpus_per_worker, may, needs=job.needs)
        kept |= {name: kept.get(name, job.id) for name in nodes or ()}
    return kept


def _find_starts(state: ClusterState) -> Iterator[tuple[float, Job, int]]:
    """When promised jobs that wait are planned to start soon, and on how many workers."""
    for job in state.queued:
        start_at = state.now
        for until_at, workers in job.promise or ():
            if workers and start_at <= state.now + AHEAD_S:
                yield start_at, job, workers
            if workers:
                break
            start_at = until_at
