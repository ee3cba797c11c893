"""Preemptive policies that are a ranking: whoever ranks first runs, at the width it asked for.

The ranking is walked over all jobs that may be moved, queued and running, as if all their GPUs were
free; what does not fit is passed over. Running jobs that are not reached stop at the end of their
epoch, if a queued job that was reached finds no GPUs now.
"""

from collections.abc import Callable, Iterator
from typing import Final

from laxity_scheduler.allocation.purse import Purse
from laxity_scheduler.capacity.eligibility import may_ever_start
from laxity_scheduler.capacity.ledger import USABLE, Ledger
from laxity_scheduler.frame.remaining import stopping
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Decision, Preempt
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan

MAX_TRIED: Final = 32  # waiting jobs for which others are stopped, per decision
Rank = Callable[[Job], tuple[float, ...]]


def is_movable(job: Job) -> bool:
    """Whether a policy may start or stop the job now."""
    if job.pinned or job.refused or job.terminating_workers:
        return False
    if not job.workers:
        return True
    return job.preemptible and not stopping(job)


def plan_by_rank(state: ClusterState, rank: Rank, *, policy: str, wake_at: float = FOREVER) -> Plan:
    """Starts and stops that bring the first jobs of the ranking onto the cluster."""
    jobs = [
        job
        for job in state.jobs
        if is_movable(job) and (not job.eligible or job.workers or may_ever_start(state, job))
    ]
    ledger = Ledger.of(state)
    free = sum(node.free_gpus for node in state.nodes if node.pool in USABLE)  # held ones too
    purse = Purse(state, jobs, free + sum(job.gpus for job in jobs))
    reached: list[Job] = []
    spared: list[Job] = []
    for job in sorted(jobs, key=lambda job: (*rank(job), job.submitted_at, job.id)):
        if purse.take(job, 0, job.workers or job.widths[0]):
            reached.append(job)
        elif job.workers:
            spared.append(job)
    return Plan(tuple(_start_reached(reached, spared, ledger, policy, state)), wake_at)


def _start_reached(
    reached: list[Job], spared: list[Job], ledger: Ledger, policy: str, state: ClusterState
) -> Iterator[Decision]:
    """Start the jobs that the ranking reached; where GPUs are missing, stop the last-ranked jobs."""
    cause = reason("order", policy=policy)
    victims = [job for job in spared if job.resumed_at != state.now]
    served = {job.stop_for for job in state.jobs} | {hold.job for hold in state.holds}
    tried = 0
    for job in reached:
        if job.workers:
            continue
        ledger.open_holds(job.id)
        may = state.eligible_nodes(job)
        nodes = ledger.place(job.widths[0], job.gpus_per_worker, may, needs=job.needs)
        if nodes is not None:
            yield Admit(job.id, job.widths[0], nodes, cause)
            continue
        ledger.close_holds(job.id)
        tried += 1
        if tried <= MAX_TRIED and job.id not in served:
            for victim in _choose_victims(job, victims, ledger, may):
                victims.remove(victim)
                stop = reason(
                    "preempt_ordered", policy=policy, beneficiary=job.id, gpus=victim.gpus
                )
                yield Preempt(victim.id, "epoch", job.id, stop)


def _choose_victims(
    job: Job, victims: list[Job], ledger: Ledger, may: frozenset[str] | None
) -> list[Job]:
    """The last-ranked running jobs whose GPUs, with the free ones, suffice; [] if none do."""
    trial = ledger.copy()
    chosen = []
    for victim in reversed(victims):
        if may is not None and may.isdisjoint(victim.nodes):
            continue
        trial.give(victim.nodes, victim.gpus_per_worker, needs=victim.needs)
        chosen.append(victim)
        if trial.slots(job.gpus_per_worker, may, needs=job.needs) >= job.widths[0]:
            return chosen
    return []
