"""Why a job that may use only some nodes can never start on them."""

from collections.abc import Mapping

from laxity_scheduler.capacity.ledger import USABLE, may_ever_start
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import Reason, reason

MOST_NAMED = 5


def misfit_reason(state: ClusterState, job: Job) -> Reason | None:
    """The reason why the job can never start on its nodes; None if it can, or may use all nodes."""
    if not job.eligible or may_ever_start(state, job):
        return None
    sizes = _gpus_by_node(state, job)
    shut_out = (state.sets or {}).get(job.eligible)
    shut_out_text = shut_out.shut_out if shut_out is not None and shut_out.shut_out else "not said"
    if not sizes:
        return reason(
            "no_eligible_node",
            asks=job.eligible,
            nodes=_all_nodes_text(state),
            shut_out=shut_out_text,
        )
    size = job.gpus_per_worker
    return reason(
        "does_not_fit_eligible_nodes",
        workers=job.widths[0],
        gpus_per_worker=size,
        slots=sum(gpus // size for gpus in sizes.values()),
        nodes=_nodes_text(sizes),
        asks=job.eligible,
        shut_out=shut_out_text,
    )


def _gpus_by_node(state: ClusterState, job: Job) -> Mapping[str, int]:
    """GPUs of each node that the job may use."""
    may = state.eligible_nodes(job)
    return {
        node.id: node.gpus
        for node in state.nodes
        if node.pool in USABLE and (may is None or node.id in may)
    }


def _all_nodes_text(state: ClusterState) -> str:
    return _nodes_text({node.id: node.gpus for node in state.nodes if node.pool in USABLE})


def _nodes_text(gpus: Mapping[str, int]) -> str:
    """Nodes with their GPUs, as text."""
    shown = ", ".join(f"{name} ({gpus[name]} GPUs)" for name in sorted(gpus)[:MOST_NAMED])
    more = len(gpus) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown or "none"
