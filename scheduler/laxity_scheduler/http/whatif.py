"""The verdict that a job would get, and its effects on others: decided, not carried out.

The policy decides twice, on the snapshot without the new job and with it. The difference is the
answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from laxity_profiler.estimate import Predictor
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import (
    Admit,
    Continue,
    Forecasted,
    Preempt,
    Promised,
    Refuse,
    Resize,
    Wait,
)
from laxity_scheduler.model.job import Job, Verdict
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.service.views.verdict_view import verdict_view
from laxity_scheduler.service.views.view_fields import Json, finite_or_none


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The verdict on a newcomer, and the plans without and with it."""

    verdict: Verdict | None
    before: Plan
    after: Plan


def decide_whatif(
    state: ClusterState, newcomer: Job, predictor: Predictor, policy: Policy
) -> WhatIf:
    """Decide with the newcomer, or with the job of that id as `newcomer` says it."""
    others = [job for job in state.jobs if job.id != newcomer.id]
    jobs = sorted([*others, newcomer], key=lambda job: (job.submitted_at, job.id))
    state_with = replace(state, jobs=tuple(jobs))
    before = with_follow_ups(policy)(state, predictor)
    after = with_follow_ups(policy)(state_with, predictor)
    return WhatIf(_verdict_on(after, newcomer), before, after)


def with_deadline(job: Job, deadline_at: float) -> Job:
    """The job as it would ask with another deadline."""
    service_class = "hard" if job.service_class == "best_effort" else job.service_class
    return replace(job, deadline_at=deadline_at, service_class=service_class, asked=True)


def whatif_view(answer: WhatIf, state: ClusterState, newcomer: Job) -> Json:
    """The answer for people and programs: verdict, offers, start, and effects on others."""
    verdict = verdict_view(answer.verdict)
    start = _start_view(answer.after, newcomer.id)
    return {
        "job": newcomer.id,
        "checked_at": state.now,
        "cycle": state.cycle,
        "p50_at": None,
        "p90_at": None,
        **verdict,
        **start,
        "effects": list(_effects_on_others(answer, state, newcomer.id)),
    }


def _verdict_on(plan: Plan, job: Job) -> Verdict | None:
    """The last verdict on the job in the plan; a refusal counts though an old promise stands."""
    last_verdict: Verdict | None = None
    for decision in plan.decisions:
        match decision:
            case Promised(job=job.id, promise=verdict):
                last_verdict = verdict
            case Forecasted(job=job.id, forecast=forecast):
                last_verdict = forecast
            case Refuse(job=job.id, refusal=refusal):
                last_verdict = refusal
            case _:
                pass
    return last_verdict


def _start_view(plan: Plan, job_id: str) -> dict[str, Any]:
    start: dict[str, Any] = {"starts_now": False, "workers": 0, "held_by": []}
    for decision in plan.decisions:
        if isinstance(decision, Admit) and decision.job == job_id:
            start |= {"starts_now": True, "workers": decision.workers}
        if isinstance(decision, Wait) and decision.job == job_id:
            start |= {
                "held_by": list(decision.held_by),
                "expected_start_at": finite_or_none(decision.expected_start_at),
                "waits_reason": decision.reason.within(job_id.partition("/")[0]).text,
            }
    return start


def _effects_on_others(answer: WhatIf, state: ClusterState, newcomer: str) -> Iterator[Json]:
    """Other jobs whose finish or treatment would be another one."""
    before, after = _p90_by_job(answer.before), _p90_by_job(answer.after)
    treated, now = _actions_by_job(answer.before), _actions_by_job(answer.after)
    postponed = {job_id: ("wait", 0) for job_id in treated if job_id not in now}
    for job_id, (what, workers) in (now | postponed).items():
        if job_id != newcomer and treated.get(job_id) != (what, workers):
            old = _current_p90_at(state, job_id)
            yield {
                "job": job_id,
                "p90_before": finite_or_none(before.get(job_id, old)),
                "p90_after": finite_or_none(after.get(job_id, before.get(job_id, old))),
                "decision": what,
                "workers": workers,
            }
            after.pop(job_id, None)
    for job_id, p90_at in after.items():
        old = before.get(job_id, _current_p90_at(state, job_id))
        if job_id != newcomer and (old is None or abs(old - p90_at) > 1.0):
            yield {
                "job": job_id,
                "p90_before": finite_or_none(old),
                "p90_after": finite_or_none(p90_at),
            }


def _actions_by_job(plan: Plan) -> dict[str, tuple[str, int]]:
    actions: dict[str, tuple[str, int]] = {}
    for decision in plan.decisions:
        if isinstance(decision, Preempt):
            actions[decision.job] = ("preempt", 0)
        elif isinstance(decision, Continue):
            actions[decision.job] = ("continue", 0)
        elif isinstance(decision, Admit | Resize):
            actions[decision.job] = (type(decision).__name__.lower(), decision.workers)
    return actions


def _p90_by_job(plan: Plan) -> dict[str, float]:
    p90s: dict[str, float] = {}
    for decision in plan.decisions:
        if isinstance(decision, Promised):
            p90s[decision.job] = decision.promise.p90_at
        elif isinstance(decision, Forecasted):
            p90s[decision.job] = decision.forecast.p90_at
    return p90s


def _current_p90_at(state: ClusterState, job_id: str) -> float | None:
    job = state.by_id.get(job_id)
    return None if job is None or job.verdict is None else job.verdict.p90_at
