"""Promises in front of any policy: the admission rule apart from who runs (algorithms 7.6, 10.1).

A hard job that asks is promised or refused as the share rules do it: planned on the minimum share
that is in time, behind all that were promised before, greedily or at a price. Who is refused does
not enter; all others are left to the policy, in its own order and on its own widths. A policy that
keeps no GPUs for later may break such a promise: reports count those.
"""

from dataclasses import replace

from laxity_profiler.estimate import Predictor
from laxity_scheduler.decision import Forecasted, Promised, Refuse
from laxity_scheduler.engine import Policy
from laxity_scheduler.plan import Plan
from laxity_scheduler.shares import Admission, ShareRule, verdicts_of
from laxity_scheduler.state import ClusterState
from laxity_scheduler.verdict import Promise


def admission_rule(kind: Admission, kappa: float | None = None) -> ShareRule:
    """The rule that promises and refuses; it starts and stops nothing here."""
    rule = ShareRule(f"{kind} promises", admission=kind, replans=8, drops=True)
    return rule if kappa is None else replace(rule, kappa=kappa)


def with_admission(policy: Policy, kind: Admission, kappa: float | None = None) -> Policy:
    """The policy behind this rule; `none`: behind none, also where the policy has its own."""
    if kind == "none":
        return _unpromised(policy)
    judge = verdicts_of(admission_rule(kind, kappa))

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        verdicts = judge(state, predictor)
        if not verdicts:
            return policy(state, predictor)
        plan = policy(Plan(verdicts).apply(state), predictor)
        anew = {d.job for d in plan.decisions if isinstance(d, Promised | Forecasted | Refuse)}
        first = tuple(verdict for verdict in verdicts if verdict.job not in anew)
        return Plan(first + plan.decisions, plan.wake_at)

    return decide


def _unpromised(policy: Policy) -> Policy:
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
