"""Who is told that pods of others hold the GPUs that it was promised: never whose pods they are."""

from collections.abc import Callable, Iterable, Sequence

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Decision, Promised
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import Reason, reason


def blame_neighbours(
    state: ClusterState,
    row: Job,
    decisions: Sequence[Decision],
    foreign_gpus: Callable[[Iterable[str]], int],
) -> Reason | None:
    """What a job in danger is told of the GPUs of others; None if it is in no danger by them."""
    blame = next(
        (
            decision.reason
            for decision in decisions
            if isinstance(decision, Promised) and decision.reason.code == "promise_in_danger"
        ),
        None,
    )
    if blame is None:
        return None
    may = state.eligible_nodes(row)
    there = {node.id: node.gpus for node in state.nodes if may is None or node.id in may}
    gpus = foreign_gpus(there)
    if not gpus:
        return None
    facts = {name: blame.fact(name) for name in ("p90_at", "late_s")}
    return reason("gpus_taken_by_others", gpus=gpus, of=sum(there.values()), **facts)
