"""Promises rest on nodes that stay: what who promises sees, and what its decisions then mean.

A job with a promise runs its base workers on training nodes; flexible ones may join it on lent
nodes. Its policy plans it as if those were not there, so nothing it promises counts on a loan. As
long as no job needs that, the policy sees all nodes.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.curve import Curve
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.loans.lent_growth import ChangeCost, use_lent_nodes
from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.decision import (
    Admit,
    Decision,
    Forecasted,
    Loan,
    Preempt,
    Promised,
    Reclaim,
    Refuse,
    Resize,
    Wait,
    verdict_after,
)
from laxity_scheduler.model.job import Forecast, Job, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan, Policy

OWN_NODES: Final = "not lent"  # what the sets of jobs are called that may not use lent nodes
SUFFIX: Final = f"|{OWN_NODES}"


def on_own_nodes(policy: Policy, change_s: ChangeCost = Curve.reform_s) -> Policy:
    """A policy that promises, without what is lent; that goes to those that gain by it.

    `change_s` is what the policy counts for a change of width.
    """

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        if not rests_on_own_nodes(state):
            return policy(state, predictor)
        every = _open_to_all(state)
        plan = policy(_hide_loans(every), predictor)
        decisions = tuple(_translate_decisions(every, plan.decisions))
        more = use_lent_nodes(every, decisions, Forecasts(every, predictor), change_s)
        started = {start.job for start in more if isinstance(start, Admit)}
        rest = tuple(d for d in decisions if not (isinstance(d, Wait) and d.job in started))
        return Plan(rest + more, plan.wake_at)

    return decide


def without_loans(state: ClusterState) -> ClusterState:
    """The snapshot for who promises: no lent nodes, nor what runs on them.

    The same snapshot where no job has a deadline to keep.
    """
    return _hide_loans(_open_to_all(state)) if rests_on_own_nodes(state) else state


def keep_running(
    state: ClusterState, verdicts: Iterable[Promised | Forecasted | Refuse]
) -> tuple[Promised | Forecasted | Refuse, ...]:
    """Verdicts given without what is lent: who runs there is not refused, but told a forecast."""
    return tuple(
        [
            _forecast_while_running(job, verdict, state.now)
            if isinstance(verdict, Refuse) and (job := state.by_id[verdict.job]).workers
            else verdict
            for verdict in verdicts
        ]
    )


def rests_on_own_nodes(state: ClusterState) -> bool:
    """Whether some nodes are lent, and some job must not count on them."""
    if state.inference is None:
        return False
    if any(name.endswith(SUFFIX) for name in state.sets or ()):
        return True  # also where all that was lent goes back right now
    if not (state.node_pools.lent or _leave_loans(state)):
        return False
    return any(needs_own_nodes(job, state.now) for job in state.jobs)


def _leave_loans(state: ClusterState) -> bool:
    """Whether some job is still on a node that goes back."""
    back = state.node_pools.names_by_pool["inference"]
    return bool(back) and not all(back.isdisjoint(job.nodes) for job in state.running)


def needs_own_nodes(job: Job, now: float) -> bool:
    """Whether its base must not be on a node that may go back before its deadline, or at all."""
    if job.service_class == "best_effort" and job.verdict is None:
        return not job.preemptible
    if not job.preemptible:
        return True
    is_due = job.service_class == "hard" or job.promise is not None
    return is_due and job.deadline_at > now  # a forecast may be wrong, even up to its horizon


def keep_promises_off_loans(state: ClusterState) -> ClusterState:
    """The snapshot where jobs that rest on nothing lent may use training nodes only."""
    lent, due = (
        state.node_pools.lent,
        [job for job in state.jobs if needs_own_nodes(job, state.now)],
    )
    if not lent or not due:
        return state
    known_rows: dict[str, tuple[Job, Job]] = state.memory.get("off_loans", {})
    rows: dict[str, tuple[Job, Job]] = {}
    for job in due:
        row = known_rows.get(job.id)
        name = f"{job.eligible}{SUFFIX}"
        rows[job.id] = row if row and row[0] is job else (job, replace(job, eligible=name))
    state.memory["off_loans"] = rows
    names = {row[0].eligible for row in rows.values()}
    every = frozenset(node.id for node in state.nodes)
    sets = {
        f"{name}{SUFFIX}": NodeSet(
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


def hide_nodes(state: ClusterState, nodes: frozenset[str]) -> ClusterState:
    """The snapshot where these nodes are inference's, and take no new workers."""
    rows = [
        replace(node, pool="inference", free_gpus=min(0, node.free_gpus))
        if node.id in nodes
        else node
        for node in state.nodes
    ]
    return replace(state, nodes=tuple(rows))


def _open_to_all(state: ClusterState) -> ClusterState:
    """`keep_promises_off_loans` taken back."""
    rows: dict[str, tuple[Job, Job]] = state.memory.get("off_loans", {})

    def restore_declaration(job: Job) -> Job:
        if not job.eligible.endswith(SUFFIX):
            return job
        row = rows.get(job.id)
        if row is not None and row[1] is job:
            return row[0]
        return replace(job, eligible=job.eligible.removesuffix(SUFFIX))

    sets = {name: some for name, some in (state.sets or {}).items() if not name.endswith(SUFFIX)}
    return replace(state, jobs=tuple(map(restore_declaration, state.jobs)), sets=sets or None)


def _not_own(state: ClusterState) -> frozenset[str]:
    """Nodes of inference: lent ones, and those that go back."""
    return state.node_pools.lent | state.node_pools.names_by_pool["inference"]


def _hide_loans(state: ClusterState) -> ClusterState:
    """The snapshot without lent nodes, each job with the workers that it keeps without them.

    A job on lent nodes alone is not there; one that needs nodes of its own waits for them.
    """
    not_own = _not_own(state)
    known_rows: dict[str, tuple[Job, Job | None]] = state.memory.get("own_workers", {})
    rows: dict[str, tuple[Job, Job | None]] = {}
    for job in state.running:
        if not not_own.isdisjoint(job.nodes):
            row = known_rows.get(job.id)
            is_known = row is not None and row[0] is job
            rows[job.id] = row if row and is_known else (job, _own_row(job, not_own, state.now))
    state.memory["own_workers"] = rows
    jobs = [rows[job.id][1] if job.id in rows else job for job in state.jobs]
    hidden = hide_nodes(state, not_own).lock_holds(rows)  # they start and grow by other decisions
    return replace(hidden, jobs=tuple([job for job in jobs if job is not None]))


def _base_width(job: Job, not_own: frozenset[str], now: float) -> int:
    """Workers that its policy sees of it; 0: all, or none.

    All of a job that could give GPUs which stay, because some of its later workers are there.
    """
    own = job.width_without(not_own)
    if own and not needs_own_nodes(job, now) and not not_own.issuperset(job.nodes[own:]):
        return 0
    return own


def _own_row(job: Job, not_own: frozenset[str], now: float) -> Job | None:
    own = _base_width(job, not_own, now)
    if own:
        return replace(
            job,
            workers=own,
            nodes=job.nodes[:own],
            formed=min(job.formed, own),
            resize_to=job.resize_to if job.resize_to < own else 0,
        )
    if not not_own.issuperset(job.nodes):
        return job
    return _as_waiting(job) if needs_own_nodes(job, now) else None


def _as_waiting(job: Job) -> Job:
    return replace(
        job,
        workers=0,
        nodes=(),
        formed=0,
        resize_to=0,
        resumed_at=None,
        epoch_started_at=None,
        stop_requested_at=None,
        stop_for="",
        parked_epoch=None,
    )


def _translate_decisions(state: ClusterState, decisions: Iterable[Decision]) -> Iterable[Decision]:
    """What decisions about own workers mean for the jobs as they run."""
    not_own = _not_own(state)
    for decision in decisions:
        job = None if isinstance(decision, Loan | Reclaim) else state.by_id.get(decision.job)
        if job is None or not_own.isdisjoint(job.nodes):
            yield decision
            continue
        own = _base_width(job, not_own, state.now)
        if isinstance(decision, Admit):  # there is room for it on nodes that stay
            if job.preemptible and job.holds_state and not stopping(job):
                yield Preempt(job.id, "epoch", "", reason("move_off_lent_nodes"))
        elif isinstance(decision, Refuse):
            yield _forecast_while_running(job, decision, state.now)
        elif isinstance(decision, Resize) and 0 < own < decision.workers:
            if job.resize_to != own:
                cause = reason("shrink_to_grow", from_workers=job.workers, workers=decision.workers)
                yield Resize(job.id, own, job.nodes[:own], "epoch", cause)
        else:
            yield decision


def _forecast_while_running(job: Job, refusal: Refuse, now: float) -> Refuse | Forecasted:
    """A refusal for who waits; who runs on lent nodes may go on there, without a promise."""
    if not isinstance(verdict_after(job, refusal, now), Refusal):
        return refusal
    p90_at = refusal.refusal.p90_at
    late_s = max(0.0, p90_at - job.deadline_at)
    cause = reason("forecast_late", p90_at=p90_at, late_s=late_s)
    return Forecasted(job.id, Forecast(p90_at, p90_at, late_s, cause), cause)
