"""From the widths that a policy wants to the decisions that lead there.

Jobs shrink and stop at an epoch's end. They start and grow on the GPUs that are free now; the rest
follows in later cycles, once those GPUs are free.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Decision, Preempt, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan


class WorkerLedger(Protocol):
    """Where new workers go: a `Ledger`, or several with an order among them."""

    def open_holds(self, job: str) -> None: ...

    def close_holds(self, job: str) -> None: ...

    def place_for(
        self, job: Job, workers: int, among: frozenset[str] | None = None
    ) -> tuple[str, ...] | None:
        """Nodes, taken, for what the job needs more to have so many workers; None if no fit."""


def plan_transition(
    state: ClusterState,
    jobs: Sequence[Job],
    width: Mapping[str, int],
    *,
    policy: str,
    ledger: WorkerLedger | None = None,
) -> Plan:
    """Decisions that bring these jobs to these widths, as far as that is possible now."""
    ledger = ledger or Ledger.of(state)
    decisions: list[Decision] = []
    for job in jobs:
        wanted = width.get(job.id, 0)
        if job.changed_now(state.now) or wanted >= job.workers:
            continue
        if wanted:
            cause = reason(
                "shrink_ordered", policy=policy, from_workers=job.workers, workers=wanted
            )
            decisions.append(Resize(job.id, wanted, job.nodes[:wanted], "epoch", cause))
        else:
            cause = reason("preempt_ordered", policy=policy, beneficiary="others", gpus=job.gpus)
            decisions.append(Preempt(job.id, "epoch", "", cause))
    for job in jobs:
        if not job.workers or job.width_changed_at != state.now:  # not twice at one instant
            decisions += _start_or_grow(
                job, width.get(job.id, 0), ledger, policy, state.eligible_nodes(job)
            )
    return Plan(tuple(decisions))


def _start_or_grow(
    job: Job, wanted: int, ledger: WorkerLedger, policy: str, may: frozenset[str] | None
) -> list[Decision]:
    wider = [level for level in job.widths if job.workers < level <= wanted]
    if not wider:
        return []
    ledger.open_holds(job.id)
    for workers in reversed(wider):
        nodes = ledger.place_for(job, workers, may)
        if nodes is None:
            continue
        cause = reason("order", policy=policy)
        if not job.workers:
            return [Admit(job.id, workers, nodes, cause)]
        return [Resize(job.id, workers, (*job.nodes, *nodes), "now", cause)]
    ledger.close_holds(job.id)
    return []
