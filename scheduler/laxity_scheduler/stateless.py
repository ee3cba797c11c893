"""Jobs that hold no state are stopped last: a stop loses all epochs that they have trained.

The policy decides on a snapshot in which such a job can neither be stopped nor, once it runs, resized.
So it is started only where it is in nobody's way. Where a hard deadline is refused or missed so, the
policy decides again: those that were promised nothing may be stopped, at last also those whose promise
leaves time for all their epochs. Such a plan counts if it serves more of these deadlines.

Jobs on lent nodes are left as they are: these nodes go back, whoever is on them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import FLEET_POOLS, ClusterState
from laxity_scheduler.model.decision import (
    Decision,
    Forecasted,
    Preempt,
    Promised,
    Refuse,
    verdict_after,
)
from laxity_scheduler.model.job import FOREVER, Job, Promise, Refusal, Verdict
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.promising.claims import deadline_in_force, holds_promise


def sparing_stateless(policy: Policy) -> Policy:
    """The policy, which stops jobs that hold no state only for hard deadlines, and resizes none."""

    def decide_sparing(state: ClusterState, predictor: Predictor) -> Plan:
        spared = find_spared(state)
        if not spared:
            return policy(state, predictor)
        plan = policy(_with_fixed(state, spared, may_stop=()), predictor)
        unserved = count_unserved(state, plan)
        if not unserved:
            return plan
        for may_stop in _last_resorts(state, spared, predictor):
            other = policy(_with_fixed(state, spared, may_stop=may_stop), predictor)
            if count_unserved(state, other) < unserved:
                return _for_hard_only(other, state)
        return plan

    return decide_sparing


def find_spared(state: ClusterState) -> list[Job]:
    """Jobs that hold no state, but for those that stop already or sit on lent nodes."""
    stateless = [job for job in state.jobs if not (job.holds_state or stopping(job))]
    if not stateless:
        return []
    fleet = {node.id for node in state.nodes if node.pool in FLEET_POOLS}
    return [job for job in stateless if fleet.isdisjoint(job.nodes)]


def _last_resorts(
    state: ClusterState, spared: Sequence[Job], predictor: Predictor
) -> Iterator[Sequence[Job]]:
    """Who may be stopped if need be: those without a promise; then those who can train it all again."""
    running = [job for job in spared if job.workers and job.preemptible]
    free = [job for job in running if not holds_promise(job, state.now)]
    if free:
        yield free
    if len(free) < len(running):
        forecasts = Forecasts(state, predictor)
        patient = [
            job
            for job in running
            if job not in free and state.now + forecasts.restart_s(job) <= deadline_in_force(job)
        ]
        if patient:
            yield [*free, *patient]


def count_unserved(state: ClusterState, plan: Plan) -> int:
    """Hard deadlines ahead that are refused by this plan, or missed at P90 after it."""
    return sum(
        isinstance(verdict, Refusal) or _is_missed(state.by_id[name], verdict, state.now)
        for name, verdict in _verdicts(state, plan)
    )


def _verdicts(state: ClusterState, plan: Plan) -> Iterator[tuple[str, Verdict]]:
    """Verdicts that the plan gives, and those that stand; a refusal that stands is no news."""
    given: dict[str, Verdict] = {
        decision.job: verdict_after(state.by_id[decision.job], decision, state.now)
        for decision in plan.decisions
        if isinstance(decision, Promised | Forecasted | Refuse)
    }
    yield from given.items()
    for job in state.jobs:
        if job.id not in given and job.verdict is not None and not job.refused:
            yield job.id, job.verdict


def _is_missed(job: Job, verdict: Verdict, now: float) -> bool:
    """Whether its deadline is ahead and missed at P90.

    A P90 finish at the deadline itself counts as well: plans by slots that are a little late say that.
    """
    due_at = verdict.deadline_at if isinstance(verdict, Promise) else job.deadline_at
    return job.service_class == "hard" and now <= due_at < FOREVER and verdict.p90_at >= due_at


def _with_fixed(
    state: ClusterState, spared: Sequence[Job], *, may_stop: Sequence[Job]
) -> ClusterState:
    """The snapshot in which these jobs keep the width they run on, and run on unless they may stop.

    Rows are the same objects as long as the jobs are: what was read of them is kept.
    """
    stops = {job.id for job in may_stop}
    table = "may stop" if stops else "fixed"
    known: dict[str, tuple[Job, Job]] = state.memory.get(table, {})
    rows: dict[str, tuple[Job, Job]] = {}
    for job in spared:
        preemptible = job.preemptible and job.id in stops
        row = known.get(job.id)
        if row is None or row[0] is not job or row[1].preemptible != preemptible:
            widths = (job.workers,) if job.workers else job.widths
            row = job, replace(job, widths=widths, preemptible=preemptible)
        rows[job.id] = row
    state.memory[table] = rows
    return replace(
        state, jobs=tuple([rows[job.id][1] if job.id in rows else job for job in state.jobs])
    )


def _for_hard_only(plan: Plan, state: ClusterState) -> Plan:
    """The plan without stops of these jobs for others than hard ones; the rest say what they cost."""
    decisions: list[Decision] = []
    for decision in plan.decisions:
        job = state.by_id[decision.job] if isinstance(decision, Preempt) else None
        if not isinstance(decision, Preempt) or job is None or job.holds_state:
            decisions.append(decision)
            continue
        beneficiary = state.by_id.get(decision.beneficiary)
        if beneficiary is not None and beneficiary.service_class == "hard":
            decisions.append(_with_loss(decision, job))
    return replace(plan, decisions=tuple(decisions))


def _with_loss(decision: Preempt, job: Job) -> Preempt:
    facts = {"gpus": job.gpus, "epochs": job.progress.epochs_done}
    cause = reason("preempt_stateless", beneficiary=decision.beneficiary, **facts)
    return replace(decision, reason=cause)
