"""Who has to leave the lent nodes that go back, and how: fewer workers, or a stop.

A job that keeps its first workers elsewhere gives up the others: nobody is preempted. Others stop.
Both wait for the end of the epoch if that comes before inference wants the GPUs; else it is now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.loans.server_choice import (
    LentServer,
    ServerChoice,
    StopCost,
    choose_servers,
)
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Preempt, Resize, When
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason

PROTECTED_WEIGHT: Final = 1_000.0  # of a job with a promise, or that should not be stopped


@dataclass(frozen=True, slots=True)
class ReclaimOrder:
    """So many lent GPUs must be back by then."""

    gpus: float
    due_at: float


def servers_of(state: ClusterState) -> list[LentServer]:
    """The lent servers that can go back, with who is on them; those that leave already are gone."""
    base: dict[str, set[str]] = {name: set() for name in state.node_pools.lent}
    flexible = dict.fromkeys(base, 0)
    pinned: set[str] = set()
    for job in state.running:
        if stopping(job):
            continue
        staying = job.nodes[: job.resize_to or job.workers]
        for name in staying:
            if name not in base:
                continue
            if job.pinned:
                pinned.add(name)
            elif job.width_without((name,)):
                flexible[name] += 1
            else:
                base[name].add(job.id)
    return [
        LentServer(node.id, node.gpus, frozenset(base[node.id]), flexible[node.id])
        for node in state.nodes
        if node.id in base and node.id not in pinned
    ]


def choose_nodes(
    state: ClusterState,
    order: ReclaimOrder,
    forecasts: Forecasts,
    choose: ServerChoice = choose_servers,
) -> list[str]:
    """The lent nodes that go back: empty ones first, then by how few jobs they stop."""
    servers = servers_of(state)
    busy = {name for job in state.running for name in job.nodes}
    servers.sort(key=lambda server: (server.id in busy, server.id))
    idle = [server for server in servers if server.id not in busy]
    gpus, names = order.gpus, []
    for server in idle:
        if gpus > 0:
            names.append(server.id)
            gpus -= server.gpus
    counts = {job.id: len(set(job.nodes)) for job in state.running}
    chosen = choose(
        servers[len(idle) :], gpus, server_counts=counts, stop_cost=_stop_cost(state, forecasts)
    )
    return names + [server.id for server in chosen]


def _stop_cost(state: ClusterState, forecasts: Forecasts) -> StopCost:
    jobs = [job for job in state.running if not state.node_pools.lent.isdisjoint(job.nodes)]
    return StopCost(
        {job.id: PROTECTED_WEIGHT for job in jobs if _is_protected(job)},
        {job.id: _measure_lost_gpu_s(job, forecasts) for job in jobs},
    )


def _is_protected(job: Job) -> bool:
    return bool(job.promise) or not (job.preemptible and job.holds_state)


def _measure_lost_gpu_s(job: Job, forecasts: Forecasts) -> float:
    """GPU-seconds that a stop at once and a start cost: the epoch that runs, and the start.

    Who holds no state loses all its epochs.
    """
    begun_at = job.epoch_started_at
    part_s = 0.0 if begun_at is None else max(0.0, forecasts.now - begun_at)
    start_s = forecasts.curve(job).start_s(job.workers, "mean")
    return job.gpus * (forecasts.lost_s(job) + part_s + start_s)


def leave_nodes(
    state: ClusterState, nodes: Sequence[str], order: ReclaimOrder, forecasts: Forecasts
) -> list[Preempt | Resize]:
    """Decisions after which no worker stays on these nodes; those that were made already are not."""
    going = frozenset(nodes)
    decisions = []
    for job in state.running:
        if job.pinned or going.isdisjoint(job.nodes) or job.changed_now(state.now):
            continue
        decision = _leave(job, going, order, forecasts)
        if decision is not None:
            decisions.append(decision)
    return decisions


def _leave(
    job: Job, going: frozenset[str], order: ReclaimOrder, forecasts: Forecasts
) -> Preempt | Resize | None:
    when = _when(job, order, forecasts)
    node = next(name for name in job.nodes if name in going)
    width = 0 if stopping(job) else job.width_without(going)
    if not width:
        if stopping(job) and (when == "epoch" or job.parked_epoch is not None):
            return None
        cause = reason("leave_lent_node", node=node, gpus=int(order.gpus), due_at=order.due_at)
        return Preempt(job.id, when, "", cause)
    if when == "epoch" and 0 < job.resize_to <= width:
        return None
    width = min(width, job.resize_to or width)
    cause = reason("shrink_off_lent_node", node=node, from_workers=job.workers, workers=width)
    return Resize(job.id, width, job.nodes[:width], when, cause)


def _when(job: Job, order: ReclaimOrder, forecasts: Forecasts) -> When:
    left_s = order.due_at - forecasts.now
    if left_s <= 0.0:
        return "now"
    free_s = forecasts.time_to_free_s(job, "p90")
    return "epoch" if free_s <= left_s or free_s == FOREVER else "now"
