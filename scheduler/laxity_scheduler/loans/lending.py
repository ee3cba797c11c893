"""Loans around any policy: what is lent, what goes back, and what the policy may still use.

A policy sees lent nodes as nodes of its own, without those that go back. Jobs with a hard deadline
beyond the loans' horizon, and jobs that must not be stopped, see training nodes only: no promise
rests on a loan that may end before it is kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import Policy
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.loans.leaving import (
    ReclaimOrder,
    choose_nodes,
    leave_nodes,
    was_changed_now,
)
from laxity_scheduler.model.cluster import ClusterState, Node, NodeSet
from laxity_scheduler.model.decision import (
    Admit,
    Continue,
    Loan,
    Preempt,
    Reclaim,
    Refuse,
    Resize,
)
from laxity_scheduler.model.inference import InferenceDemand
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_application import apply_decisions

OWN_NODES: Final = "not lent"  # what the sets of jobs are called that may not use lent nodes
SOON_S: Final = 1.0
DROPPED: Final = (Admit, Continue, Preempt, Refuse, Resize)


def with_loans(policy: Policy) -> Policy:
    """The policy, with loans and reclaims; the same where the snapshot has no inference demand."""

    def decide_with_loans(state: ClusterState, predictor: Predictor) -> Plan:
        demand = state.inference
        if demand is None:
            return policy(state, predictor)
        step = plan_loans(state, demand, Forecasts(state, predictor))
        plan = policy(step.visible, predictor)
        leavers = {decision.job for decision in step.leave}
        rest = tuple(
            decision
            for decision in plan.decisions
            if not (isinstance(decision, DROPPED) and decision.job in leavers)
        )
        return Plan(step.leave + rest + step.moves, min(plan.wake_at, step.wake_at))

    return decide_with_loans


@dataclass(frozen=True, slots=True)
class LoanStep:
    """What is decided about loans, and the snapshot that the policy sees."""

    visible: ClusterState
    leave: tuple[Preempt | Resize, ...] = ()
    moves: tuple[Loan | Reclaim, ...] = ()
    wake_at: float = FOREVER


def plan_loans(state: ClusterState, demand: InferenceDemand, forecasts: Forecasts) -> LoanStep:
    """Lend idle nodes as long as the forecast allows, or take lent ones back."""
    lent = [node for node in state.nodes if node.pool == "loaned"]
    fleet = [node for node in state.nodes if node.pool == "inference"]
    lent_gpus = _count_gpus(lent)
    pool_gpus = lent_gpus + _count_gpus(fleet)
    more_gpus = demand.lendable_gpus(pool_gpus) - lent_gpus
    visible = keep_promises_off_loans(state, demand.horizon_at)
    if more_gpus >= 0:
        return LoanStep(visible, moves=_lend(fleet, more_gpus, pool_gpus, state))
    order = ReclaimOrder(-more_gpus, demand.due_at(state.now))
    nodes = choose_nodes(state, order, forecasts)
    leave = tuple(leave_nodes(state, nodes, order, forecasts))
    users = [job for job in state.running if not set(nodes).isdisjoint(job.nodes)]
    look_at = order.due_at if order.due_at > state.now else FOREVER
    if any(was_changed_now(job, state.now) for job in users):
        look_at = state.now + SOON_S
    return LoanStep(
        _hide(apply_decisions(visible, leave), frozenset(nodes)),
        leave,
        _hand_back(state, nodes, order),
        look_at if users else FOREVER,
    )


def _lend(
    fleet: Iterable[Node], gpus: float, pool_gpus: int, state: ClusterState
) -> tuple[Loan, ...]:
    demand = state.inference
    if demand is None or demand.horizon_at <= state.now:
        return ()
    nodes = []
    for node in fleet:
        if node.free_gpus == node.gpus <= gpus:
            nodes.append(node.id)
            gpus -= node.gpus
    if not nodes:
        return ()
    cause = reason(
        "lend_idle",
        needed_gpus=round(demand.peak_gpus, 1),
        pool_gpus=pool_gpus,
        horizon_at=demand.horizon_at,
        nodes=len(nodes),
    )
    return (Loan(tuple(nodes), cause),)


def _hand_back(
    state: ClusterState, nodes: Iterable[str], order: ReclaimOrder
) -> tuple[Reclaim, ...]:
    """Of these nodes, those that nobody uses any more."""
    going = frozenset(nodes)
    busy = {name for job in state.running for name in job.nodes}
    terminating = any(job.terminating_workers for job in state.jobs)
    empty = [
        node.id
        for node in state.nodes
        if node.id in going
        and node.id not in busy
        and (node.free_gpus == node.gpus or not terminating)
    ]
    if not empty:
        return ()
    cause = reason("hand_back", gpus=int(order.gpus), due_at=order.due_at, nodes=len(empty))
    return (Reclaim(tuple(empty), cause),)


def _hide(state: ClusterState, nodes: frozenset[str]) -> ClusterState:
    """The snapshot where these nodes take no new workers."""
    rows = [
        replace(node, pool="cordoned", free_gpus=min(0, node.free_gpus))
        if node.id in nodes
        else node
        for node in state.nodes
    ]
    return replace(state, nodes=tuple(rows))


def keep_promises_off_loans(state: ClusterState, horizon_at: float) -> ClusterState:
    """The snapshot where jobs that rest on nothing lent may use training nodes only."""
    lent = frozenset(node.id for node in state.nodes if node.pool == "loaned")
    if not lent or not any(_needs_own_nodes(job, horizon_at) for job in state.jobs):
        return state
    known: dict[str, tuple[Job, Job]] = state.memory.get("off_loans", {})
    rows: dict[str, tuple[Job, Job]] = {}
    for job in state.jobs:
        if _needs_own_nodes(job, horizon_at):
            row = known.get(job.id)
            name = f"{job.eligible}|{OWN_NODES}"
            rows[job.id] = row if row and row[0] is job else (job, replace(job, eligible=name))
    state.memory["off_loans"] = rows
    names = {row[0].eligible for row in rows.values()}
    every = frozenset(node.id for node in state.nodes)
    sets = {
        f"{name}|{OWN_NODES}": NodeSet(
            (every if (own := state.nodes_of_set(name)) is None else own) - lent,
            "lent nodes go back to inference",
        )
        for name in sorted(names)
    }
    return replace(
        state,
        jobs=tuple([rows[job.id][1] if job.id in rows else job for job in state.jobs]),
        sets={**(state.sets or {}), **sets},
    )


def without_loans(state: ClusterState) -> ClusterState:
    """The snapshot for who plans all GPUs as one pool: lent nodes are closed, and no set says so."""
    lent = [node for node in state.nodes if node.pool == "loaned"]
    if state.inference is None or not lent:
        return state
    rows: dict[str, tuple[Job, Job]] = state.memory.get("off_loans", {})
    suffix = f"|{OWN_NODES}"

    def own(job: Job) -> Job:
        if not job.eligible.endswith(suffix):
            return job
        row = rows.get(job.id)
        if row is not None and row[1] is job:
            return row[0]
        return replace(job, eligible=job.eligible.removesuffix(suffix))

    sets = {name: some for name, some in (state.sets or {}).items() if not name.endswith(suffix)}
    closed = _hide(state, frozenset(node.id for node in lent))
    return replace(closed, jobs=tuple(map(own, state.jobs)), sets=sets or None)


def _needs_own_nodes(job: Job, horizon_at: float) -> bool:
    """Whether it must not be on a node that may go back before its deadline."""
    if not job.preemptible:
        return True
    is_due = job.service_class == "hard" or job.promise is not None
    return is_due and job.deadline_at > horizon_at


def _count_gpus(nodes: Iterable[Node]) -> int:
    return sum(node.gpus for node in nodes)
