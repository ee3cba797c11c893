"""Which jobs the cluster's nodes can never hold, why, and which they can hold after all."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from laxity_scheduler.capacity.ledger import STARTABLE, USABLE, Ledger
from laxity_scheduler.model.cluster import PROMISABLE_POOLS, ClusterState, Pool
from laxity_scheduler.model.job import (
    Job,
    NodeRoom,
    Refusal,
    Verdict,
    describe_needs,
    workers_that_fit,
)
from laxity_scheduler.model.reasons import Reason, reason

MOST_NAMED = 5
NODE_CODES = frozenset(  # refusals for want of nodes
    {
        "does_not_fit_any_node",
        "does_not_fit_cluster",
        "does_not_fit_eligible_nodes",
        "no_eligible_node",
        "requests_do_not_fit",
    }
)
CLOSED = {"cordoned": "cordoned", "inference": "kept for inference by label laxity.dev/pool"}


def may_ever_start(state: ClusterState, job: Job) -> bool:
    """Whether the nodes that it may use would hold its least width if they were empty."""
    return count_slots(state, job) >= job.widths[0]


def count_slots(state: ClusterState, job: Job, pools: Collection[Pool] = STARTABLE) -> int:
    """How many of its workers the nodes of these pools that it may use hold when they are empty."""
    if not job.needs:
        capacity = state.capacity(job.eligible)
        if pools is STARTABLE:
            return capacity.slots(job.gpus_per_worker)
        sizes = capacity.training.items()
        return sum(nodes * (gpus // job.gpus_per_worker) for gpus, nodes in sizes)
    may, shape = state.eligible_nodes(job), job.shape
    return sum(
        workers_that_fit(NodeRoom(node.gpus, node.room), shape)
        for node in state.nodes
        if node.pool in pools and (may is None or node.id in may)
    )


def misfit_reason(state: ClusterState, job: Job) -> Reason | None:
    """The reason why its nodes never hold the job; None if they do, or if all nodes have too few GPUs."""
    if not (job.eligible or job.needs) or may_ever_start(state, job):
        return None
    if job.needs and may_ever_start(state, replace(job, needs=())):
        return reason(
            "requests_do_not_fit",
            needs=describe_needs(job.needs),
            gpus_per_worker=job.gpus_per_worker,
            workers=job.widths[0],
            slots=count_slots(state, job),
        )
    if not job.eligible:
        return None
    sizes = _gpus_by_node(state, job)
    shut_out_text = _shut_out_text(state, job)
    if not sizes:
        return reason(
            "no_eligible_node",
            asks=job.eligible,
            nodes=_nodes_text({node.id: node.gpus for node in state.nodes if node.pool in USABLE}),
            shut_out=shut_out_text,
        )
    size = job.gpus_per_worker
    return reason(
        "does_not_fit_eligible_nodes",
        workers=job.widths[0],
        gpus_per_worker=size,
        slots=count_slots(state, job),
        nodes=_nodes_text(sizes),
        asks=job.eligible,
        shut_out=shut_out_text,
    )


def requests_full(ledger: Ledger, job: Job, workers: int, state: ClusterState) -> Reason | None:
    """Why a job waits though GPUs are free: its workers request more of nodes than these; None: not so."""
    if not job.needs:
        return None
    slots = ledger.slots(job.gpus_per_worker, state.eligible_nodes(job), needs=job.needs)
    free = ledger.slots(job.gpus_per_worker, state.eligible_nodes(job))
    if not slots < workers <= free:
        return None
    return reason(
        "node_requests_full",
        workers=workers,
        needs=describe_needs(job.needs),
        gpus_per_worker=job.gpus_per_worker,
        slots=slots,
    )


def no_free_gpus(
    state: ClusterState, eligible: str, *, needed_gpus: int, gpus_per_worker: int, free_gpus: int
) -> Reason:
    """Too few GPUs are free on the nodes of a set; names those whose idle ones take no pod."""
    may = state.nodes_of_set(eligible)
    troubled = [node for node in state.troubled if may is None or node.id in may]
    facts = {
        "needed_gpus": needed_gpus,
        "gpus_per_worker": gpus_per_worker,
        "free_gpus": free_gpus,
    }
    if not troubled:
        return reason("no_free_gpus", **facts)
    shown = ", ".join([f"{node.id} ({node.trouble})" for node in troubled[:MOST_NAMED]])
    more = len(troubled) - MOST_NAMED
    troubles = f"{shown} and {more} more" if more > 0 else shown
    return reason("idle_gpus_unschedulable", **facts, troubles=troubles)


def never_starts(state: ClusterState, job: Job) -> Reason | None:
    """Why the job does not even fit the empty cluster; None if it does."""
    if job.eligible or job.needs:
        misfit = misfit_reason(state, job)
        if misfit is not None or job.eligible:
            return misfit
    workers, size = job.widths[0], job.gpus_per_worker
    slots = count_slots(state, job)
    if workers <= slots:
        return None
    return reason("does_not_fit_cluster", workers=workers, gpus_per_worker=size, slots=slots)


def lacks_nodes(verdict: Verdict | None) -> bool:
    """Whether a job was refused because no nodes would hold it."""
    return isinstance(verdict, Refusal) and verdict.reason.code in NODE_CODES


def has_nodes_now(state: ClusterState, job: Job) -> bool:
    """Whether a job that was refused for want of nodes fits on those that there are now."""
    return lacks_nodes(job.verdict) and count_slots(state, job, PROMISABLE_POOLS) >= job.widths[0]


def _shut_out_text(state: ClusterState, job: Job) -> str:
    """What keeps the job off nodes: first those that it asks for and that take no training now."""
    may = state.eligible_nodes(job) or ()
    nodes_by_pool: dict[str, list[str]] = {}
    for node in state.nodes:
        if node.pool in CLOSED and node.id in may:
            nodes_by_pool.setdefault(node.pool, []).append(node.id)
    closed = [
        f"{_names_text(nodes)}: {CLOSED[pool]}" for pool, nodes in sorted(nodes_by_pool.items())
    ]
    node_set = (state.sets or {}).get(job.eligible)
    others = node_set.shut_out if node_set is not None else ""
    return "; ".join([*closed, *filter(None, [others])]) or "not said"


def _gpus_by_node(state: ClusterState, job: Job) -> Mapping[str, int]:
    """GPUs of each node that the job may use."""
    may = state.eligible_nodes(job)
    return {
        node.id: node.gpus
        for node in state.nodes
        if node.pool in STARTABLE and (may is None or node.id in may)
    }


def _names_text(nodes: list[str]) -> str:
    more = len(nodes) - MOST_NAMED
    return ", ".join(sorted(nodes)[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _nodes_text(gpus: Mapping[str, int]) -> str:
    """Nodes with their GPUs, as text."""
    shown = ", ".join(f"{name} ({gpus[name]} GPUs)" for name in sorted(gpus)[:MOST_NAMED])
    more = len(gpus) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown or "none"
