"""Where further workers of a job go, and which nodes those that wait could use."""

from laxity_scheduler.model.job import Job
from laxity_scheduler.qos.context import DecisionContext


def find_awaited_nodes(context: DecisionContext) -> frozenset[str] | None:
    """The nodes that those who wait may use; None: all."""
    nodes: frozenset[str] = frozenset()
    for entry in context.blocked:
        may = context.state.eligible_nodes(entry.job)
        if may is None:
            return None
        nodes |= may
    return nodes


def more_nodes(context: DecisionContext, job: Job, workers: int) -> tuple[str, ...] | None:
    """Nodes for more workers of a running job, to the end."""
    ledger, placement = context.ledger, context.placement
    rest_s, claimed = context.forecasts.rest_s(job, job.workers), context.claims(job)
    if context.grows:
        return placement.place(ledger, job, workers, rest_s, claimed=claimed)
    return placement.place_on(ledger, job, workers, rest_s, claimed=claimed)
