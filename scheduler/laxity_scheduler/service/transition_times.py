"""How long stops and starts take, as only the service can see it: pods that went, workers that formed.

A worker can time its epochs and checkpoints, but not how long its own pods took to go or to come.
Two successive snapshots show both. Each transition is reported once, named by its beginning.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from laxity_profiler.estimate import Workload
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job


@dataclass(frozen=True, slots=True)
class Transition:
    """`suspend`: from parked until all pods are gone. `resume`: from the patch until formed."""

    job: str
    workload: Workload
    kind: Literal["suspend", "resume"]
    workers: int
    seconds: float
    began_at: float


class TransitionWatcher:
    """Compares each snapshot with the one before."""

    def __init__(self) -> None:
        self._before: Mapping[str, Job] = {}
        self._parked: dict[str, tuple[float, int]] = {}
        self._ignored_before = 0.0

    def ignore_before(self, at: float) -> None:
        """Take no transition that began until this instant: the clock was another one then."""
        self._ignored_before = at

    def take_transitions(self, state: ClusterState, faults: JobFaults) -> list[Transition]:
        """The stops and starts that ended since the last call."""
        transitions: list[Transition] = []
        for job in state.jobs:
            with faults.isolate("observed stop", job.id):
                each = self._transitions_of(job, state.now)
                transitions += [row for row in each if row.began_at > self._ignored_before]
        self._before = state.by_id
        self._parked = {job: since for job, since in self._parked.items() if job in state.by_id}
        return transitions

    def _transitions_of(self, job: Job, now: float) -> Iterator[Transition]:
        before = self._before.get(job.id)
        if before is job or before is None:
            return
        begins = job.formed and not before.formed and before.restarted_at is None
        if begins and job.resumed_at is not None:
            formed_at = job.epoch_started_at or job.since
            if formed_at > job.resumed_at:
                took_s = formed_at - job.resumed_at
                yield Transition(
                    job.id, job.workload, "resume", job.workers, took_s, job.resumed_at
                )
        if job.parked_epoch is not None and job.workers:
            self._parked.setdefault(job.id, (job.since, job.workers))
        elif job.workers or job.terminating_workers:
            if job.workers:
                self._parked.pop(job.id, None)
        elif job.id in self._parked:
            parked_at, workers = self._parked.pop(job.id)
            yield Transition(job.id, job.workload, "suspend", workers, now - parked_at, parked_at)
