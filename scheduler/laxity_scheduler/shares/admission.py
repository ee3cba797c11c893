"""Promises in front of any policy: the admission rule apart from who runs (algorithms.md 7.6, 10.1).

A hard job that asks is promised or refused as the share rules do it: planned on the minimum share
that is in time, behind all that were promised before. Who is refused does
not enter; all others are left to the policy, in its own order and on its own widths. A policy that
plans ahead itself may object: a promise that it sees in danger at once is not given. One that keeps
no GPUs for later may break a promise: reports count those.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeGuard

from laxity_profiler.estimate import Predictor
from laxity_scheduler.loans.own_nodes import keep_running, without_loans
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Forecasted, Promised, Refuse
from laxity_scheduler.model.job import Forecast, Job, Promise, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.promising.claims import deadline_in_force, holds_promise
from laxity_scheduler.shares.rule import Admission, ShareRule, judge

Verdict = Promised | Forecasted | Refuse
LateEnds = Callable[[ClusterState, Predictor], Mapping[str, float]]  # of promised jobs, by id


# what promises and refuses; it starts and stops nothing here
RULE: Final = ShareRule("greedy promises", admission="greedy", drops=True)


def with_admission(policy: Policy, kind: Admission, find_late: LateEnds | None = None) -> Policy:
    """The policy behind this rule; `none`: behind none, also where the policy has its own.

    `find_late` says which promises the policy could not keep: none is given that adds to those.
    """
    if kind == "none":
        return _soften_unpromised(policy)

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        told = judge(RULE, without_loans(state), predictor)
        verdicts = {verdict.job: verdict for verdict in keep_running(state, told)}
        if not verdicts:
            return policy(state, predictor)
        if find_late is not None:
            verdicts |= _refuse_late(state, predictor, verdicts, find_late)
        while True:
            plan = policy(apply_plan(Plan(tuple(verdicts.values())), state), predictor)
            new_verdicts = {d.job: d for d in plan.decisions if isinstance(d, Verdict)}
            given = {job for job, verdict in verdicts.items() if isinstance(verdict, Promised)}
            late = [d for d in new_verdicts.values() if _in_danger(d) and d.job in given]
            if not late:
                break
            verdicts |= {d.job: _refuse_job(state.by_id[d.job], d, state) for d in late}
        first = tuple(verdict for job_id, verdict in verdicts.items() if job_id not in new_verdicts)
        return Plan(first + plan.decisions, plan.wake_at)

    return decide


def _refuse_late(
    state: ClusterState, predictor: Predictor, verdicts: Mapping[str, Verdict], find_late: LateEnds
) -> dict[str, Verdict]:
    """The verdicts, with refusals in place of promises that would be late or make others late."""
    before, given = find_late(state, predictor), dict(verdicts)
    while promises := [each for each in given.values() if isinstance(each, Promised)]:
        judged = apply_plan(Plan(tuple(given.values())), state)
        late = find_late(judged, predictor)
        late_s = [
            late[job] - deadline_in_force(judged.by_id[job]) for job in late if job not in before
        ]
        if not late_s:
            break
        worst = next((each for each in promises if each.job in late), promises[-1])
        end_at = worst.promise.deadline_at + max(late_s)
        danger = replace(worst, promise=replace(worst.promise, p50_at=end_at, p90_at=end_at))
        given[worst.job] = _refuse_job(state.by_id[worst.job], danger, state)
    return given


def _in_danger(decision: Verdict) -> TypeGuard[Promised]:
    return isinstance(decision, Promised) and decision.reason.code == "promise_in_danger"


def _refuse_job(job: Job, danger: Promised, state: ClusterState) -> Verdict:
    """What it is told instead; who runs already runs on without a promise."""
    promise = danger.promise
    late_s = promise.p90_at - promise.deadline_at
    if job.workers and not holds_promise(job, state.now):
        verdict_reason = reason("forecast_late", p90_at=promise.p90_at, late_s=late_s)
        return Forecasted(
            job.id, Forecast(promise.p50_at, promise.p90_at, late_s, verdict_reason), verdict_reason
        )
    verdict_reason = reason(
        "capacity_promised_to_others",
        needed_gpus=job.widths[0] * job.gpus_per_worker,
        free_gpus=state.free_gpus,
        late_s=late_s,
    )
    return Refuse(job.id, Refusal(verdict_reason, (), promise.p90_at), verdict_reason)


def _soften_unpromised(policy: Policy) -> Policy:
    """Hard jobs count as soft, but for those that hold a promise already."""

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        rows = tuple(
            [
                replace(job, service_class="soft")
                if job.service_class == "hard" and not isinstance(job.verdict, Promise)
                else job
                for job in state.jobs
            ]
        )
        return policy(replace(state, jobs=rows), predictor)

    return decide
