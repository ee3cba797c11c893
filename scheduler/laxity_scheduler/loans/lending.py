"""Loans around any policy: what is lent, what goes back, and what the policy may still use.

A policy sees lent nodes as nodes of its own, without those that go back. Jobs with a hard deadline
ahead, and jobs that must not be stopped, see training nodes only: no promise rests on a loan.
As long as there are such jobs, policies that promise plan without lent nodes (`own_nodes`); what is
free there goes to who gains by it (`lent_growth`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.loans.leaving import (
    ReclaimOrder,
    choose_nodes,
    leave_nodes,
)
from laxity_scheduler.loans.lent_offers import offer_lent_gpus
from laxity_scheduler.loans.own_nodes import hide_nodes, keep_promises_off_loans
from laxity_scheduler.loans.server_choice import ServerChoice, choose_servers
from laxity_scheduler.model.cluster import FLEET_POOLS, LENT_POOLS, ClusterState, InferenceDemand
from laxity_scheduler.model.decision import (
    Admit,
    Continue,
    Loan,
    Preempt,
    Reclaim,
    Refuse,
    Resize,
)
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.plan_application import apply_decisions
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan, Policy

SOON_S: Final = 1.0
DROPPED: Final = (Admit, Continue, Preempt, Refuse, Resize)


def with_loans(policy: Policy, choose: ServerChoice = choose_servers) -> Policy:
    """The policy, with loans and reclaims; the same where the snapshot has no inference demand."""

    def decide_with_loans(state: ClusterState, predictor: Predictor) -> Plan:
        demand = state.inference
        if demand is None:
            return policy(state, predictor)
        forecasts = Forecasts(state, predictor)
        step = plan_loans(state, demand, forecasts, choose)
        plan = policy(step.visible, predictor)
        leavers = {decision.job for decision in step.leave}
        rest = tuple(
            decision
            for decision in plan.decisions
            if not (isinstance(decision, DROPPED) and decision.job in leavers)
        )
        decisions = offer_lent_gpus(state, step.visible, rest, forecasts)
        return Plan(step.leave + decisions + step.moves, min(plan.wake_at, step.wake_at))

    return decide_with_loans


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
    pool_gpus, lent_gpus = state.count_gpus(FLEET_POOLS), state.count_gpus(LENT_POOLS)
    more_gpus = demand.lendable_gpus(pool_gpus) - lent_gpus
    visible = keep_promises_off_loans(state)
    if more_gpus >= 0:
        return LoanStep(visible, moves=_lend(state, demand, more_gpus, pool_gpus))
    order = ReclaimOrder(-more_gpus, demand.due_at(state.now))
    nodes = choose_nodes(state, order, forecasts, choose)
    leave = tuple(leave_nodes(state, nodes, order, forecasts))
    visible = visible.lock_holds({decision.job for decision in leave})
    users = [job for job in state.running if not set(nodes).isdisjoint(job.nodes)]
    look_at = order.due_at if order.due_at > state.now else FOREVER
    if any(job.changed_now(state.now) for job in users):
        look_at = state.now + SOON_S
    return LoanStep(
        hide_nodes(apply_decisions(visible, leave), frozenset(nodes)),
        leave,
        _hand_back(state, nodes, order),
        look_at if users else FOREVER,
    )


def _lend(
    state: ClusterState, demand: InferenceDemand, gpus: float, pool_gpus: int
) -> tuple[Loan, ...]:
    if demand.horizon_at <= state.now:
        return ()
    nodes = []
    for node in state.nodes:
        if node.pool == "inference" and node.free_gpus == node.gpus <= gpus:
            nodes.append(node.id)
            gpus -= node.gpus
    if not nodes:
        return ()
    cause = reason(
        "lend_idle",
        needed_gpus=ceil(demand.peak_gpus),
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
