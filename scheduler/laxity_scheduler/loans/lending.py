"""Loans around any policy: what is lent, what goes back, and what the policy may still use.

A policy sees lent nodes as nodes of its own, without those that go back. Jobs with a hard deadline
ahead, and jobs that must not be stopped, see training nodes only: no promise rests on a loan.
As long as there are such jobs, policies that promise plan without lent nodes (`without_loans`), and
waiting best-effort jobs start on what is free there.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.engine import Policy
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.loans.leaving import (
    ReclaimOrder,
    choose_nodes,
    leave_nodes,
    was_changed_now,
)
from laxity_scheduler.loans.server_choice import ServerChoice, choose_servers
from laxity_scheduler.model.cluster import ClusterState, Node, NodeSet, Pool
from laxity_scheduler.model.decision import (
    Admit,
    Continue,
    Decision,
    Loan,
    Preempt,
    Reclaim,
    Refuse,
    Resize,
    Wait,
)
from laxity_scheduler.model.inference import InferenceDemand
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_application import apply_decisions

OWN_NODES: Final = "not lent"  # what the sets of jobs are called that may not use lent nodes
LENT: Final[tuple[Pool, ...]] = ("loaned",)
SOON_S: Final = 1.0
DROPPED: Final = (Admit, Continue, Preempt, Refuse, Resize)


def with_loans(policy: Policy, choose: ServerChoice = choose_servers) -> Policy:
    """The policy, with loans and reclaims; the same where the snapshot has no inference demand."""

    def decide_with_loans(state: ClusterState, predictor: Predictor) -> Plan:
        demand = state.inference
        if demand is None:
            return policy(state, predictor)
        step = plan_loans(state, demand, Forecasts(state, predictor), choose)
        plan = policy(step.visible, predictor)
        leavers = {decision.job for decision in step.leave}
        rest = tuple(
            decision
            for decision in plan.decisions
            if not (isinstance(decision, DROPPED) and decision.job in leavers)
        )
        starts = start_on_lent_nodes(step.visible, rest, leavers)
        started = {start.job for start in starts}
        rest = tuple(d for d in rest if not (isinstance(d, Wait) and d.job in started))
        return Plan(step.leave + rest + starts + step.moves, min(plan.wake_at, step.wake_at))

    return decide_with_loans


def start_on_lent_nodes(
    state: ClusterState, decisions: Sequence[Decision], leavers: Collection[str]
) -> tuple[Admit, ...]:
    """Waiting best-effort jobs on lent nodes that the policy has left free.

    Policies that promise see their own nodes only; this is how their other jobs use loans. Jobs of
    a quota wait for the policy, which counts it.
    """
    if not any(node.pool == "loaned" and node.free_gpus > 0 for node in state.nodes):
        return ()
    acted = {d.job for d in decisions if isinstance(d, DROPPED)} | set(leavers)
    waiting = [
        job
        for job in state.queued
        if job.service_class == "best_effort"
        and job.preemptible
        and not (job.quota or job.promise or job.id in acted)
    ]
    if not waiting:
        return ()
    ledger = Ledger.of(state, pools=LENT)
    for decision in decisions:
        if isinstance(decision, Admit | Resize):
            job = state.by_id[decision.job]
            new = [name for name in decision.nodes[job.workers :] if ledger.knows(name)]
            ledger.take(new, job.gpus_per_worker)
    starts: list[Admit] = []
    if not ledger.total_free:
        return ()
    for job in sorted(waiting, key=lambda job: (job.submitted_at, job.id)):
        ledger.open_holds(job.id)
        nodes = ledger.place(job.widths[0], job.gpus_per_worker, state.eligible_nodes(job))
        if nodes is None:
            ledger.close_holds(job.id)
            continue
        starts.append(Admit(job.id, job.widths[0], nodes, reason("start_on_lent")))
    return tuple(starts)


@dataclass(frozen=True, slots=True)
class LoanStep:
    """What is decided about loans, and the snapshot that the policy sees."""

    visible: ClusterState
    leave: tuple[Preempt | Resize, ...] = ()
    moves: tuple[Loan | Reclaim, ...] = ()
    wake_at: float = FOREVER


def plan_loans(
    state: ClusterState,
    demand: InferenceDemand,
    forecasts: Forecasts,
    choose: ServerChoice = choose_servers,
) -> LoanStep:
    """Lend idle nodes as long as the forecast allows, or take lent ones back."""
    pooled = list(zip(state.node_pools.pools, state.nodes, strict=True))
    lent = [node for pool, node in pooled if pool == "loaned"]
    fleet = [node for pool, node in pooled if pool == "inference"]
    lent_gpus = _count_gpus(lent)
    pool_gpus = lent_gpus + _count_gpus(fleet)
    more_gpus = demand.lendable_gpus(pool_gpus) - lent_gpus
    visible = keep_promises_off_loans(state)
    if more_gpus >= 0:
        return LoanStep(visible, moves=_lend(fleet, more_gpus, pool_gpus, state))
    order = ReclaimOrder(-more_gpus, demand.due_at(state.now))
    nodes = choose_nodes(state, order, forecasts, choose)
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


def keep_promises_off_loans(state: ClusterState) -> ClusterState:
    """The snapshot where jobs that rest on nothing lent may use training nodes only."""
    lent, due = (
        state.node_pools.lent,
        [job for job in state.jobs if _needs_own_nodes(job, state.now)],
    )
    if not lent or not due:
        return state
    known: dict[str, tuple[Job, Job]] = state.memory.get("off_loans", {})
    rows: dict[str, tuple[Job, Job]] = {}
    for job in due:
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
    """The snapshot for who promises: no lent nodes, nor the jobs that run on lent nodes alone.

    The same snapshot where no job has a deadline to keep.
    """
    lent = state.node_pools.lent
    if state.inference is None or not lent:
        return state
    if not any(_needs_own_nodes(job, state.now) for job in state.jobs):
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
    jobs = [job for job in state.jobs if not (job.nodes and lent.issuperset(job.nodes))]
    return replace(_hide(state, lent), jobs=tuple(map(own, jobs)), sets=sets or None)


def _needs_own_nodes(job: Job, now: float) -> bool:
    """Whether it must not be on a node that may go back before its deadline, or at all."""
    if job.service_class == "best_effort" and job.verdict is None:
        return not job.preemptible
    if not job.preemptible:
        return True
    is_due = job.service_class == "hard" or job.promise is not None
    return is_due and job.deadline_at > now  # a forecast may be wrong, even up to its horizon


def _count_gpus(nodes: Iterable[Node]) -> int:
    return sum(node.gpus for node in nodes)
