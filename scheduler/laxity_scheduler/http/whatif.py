"""What would be said to a job, and what it would do to others: decided, not carried out.

The same function that decides for real is asked twice, on the snapshot without the newcomer and
with it. What differs is the answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import Policy
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
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.verdict import Verdict
from laxity_scheduler.plan import Plan
from laxity_scheduler.service.views import Json, finite, verdict_view


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on a newcomer, and the plans without and with it."""

    verdict: Verdict | None
    before: Plan
    after: Plan


def ask(state: ClusterState, newcomer: Job, predictor: Predictor, policy: Policy) -> Answer:
    """Decide with the newcomer, or with the job of that id as `newcomer` says it."""
    others = [job for job in state.jobs if job.id != newcomer.id]
    jobs = sorted([*others, newcomer], key=lambda job: (job.submitted_at, job.id))
    asked = replace(state, jobs=tuple(jobs))
    before = with_follow_ups(policy)(state, predictor)
    after = with_follow_ups(policy)(asked, predictor)
    after.check(asked)
    return Answer(_verdict(after, newcomer), before, after)


def answer_json(answer: Answer, state: ClusterState, newcomer: Job) -> Json:
    """The answer for people and programs: verdict, offers, start, and effects on others."""
    said = verdict_view(answer.verdict)
    start = _start(answer.after, newcomer.id)
    return {
        "job": newcomer.id,
        "checked_at": state.now,
        "cycle": state.cycle,
        "p50_at": None,
        "p90_at": None,
        **said,
        **start,
        "effects": list(_effects(answer, state, newcomer.id)),
    }


def _verdict(plan: Plan, job: Job) -> Verdict | None:
    """The last verdict on the job in the plan; a refusal counts though an old promise stands."""
    found: Verdict | None = None
    for decision in plan.decisions:
        match decision:
            case Promised(job=job.id, promise=verdict):
                found = verdict
            case Forecasted(job=job.id, forecast=forecast):
                found = forecast
            case Refuse(job=job.id, refusal=refusal):
                found = refusal
            case _:
                pass
    return found


def _start(plan: Plan, job_id: str) -> dict[str, Any]:
    start: dict[str, Any] = {"starts_now": False, "workers": 0, "held_by": []}
    for decision in plan.decisions:
        if isinstance(decision, Admit) and decision.job == job_id:
            start |= {"starts_now": True, "workers": decision.workers}
        if isinstance(decision, Wait) and decision.job == job_id:
            start |= {
                "held_by": list(decision.held_by),
                "expected_start_at": finite(decision.expected_start_at),
                "waits_reason": decision.reason.within(job_id.partition("/")[0]).text,
            }
    return start


def _effects(answer: Answer, state: ClusterState, newcomer: str) -> Iterator[Json]:
    """Other jobs whose finish or treatment would be another one."""
    before, after = _p90s(answer.before), _p90s(answer.after)
    treated, now = _treated(answer.before), _treated(answer.after)
    postponed = {job_id: ("wait", 0) for job_id in treated if job_id not in now}
    for job_id, (what, workers) in (now | postponed).items():
        if job_id != newcomer and treated.get(job_id) != (what, workers):
            old = _standing(state, job_id)
            yield {
                "job": job_id,
                "p90_before": finite(before.get(job_id, old)),
                "p90_after": finite(after.get(job_id, before.get(job_id, old))),
                "decision": what,
                "workers": workers,
            }
            after.pop(job_id, None)
    for job_id, p90_at in after.items():
        old = before.get(job_id, _standing(state, job_id))
        if job_id != newcomer and (old is None or abs(old - p90_at) > 1.0):
            yield {"job": job_id, "p90_before": finite(old), "p90_after": finite(p90_at)}


def _treated(plan: Plan) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for decision in plan.decisions:
        if isinstance(decision, Preempt):
            found[decision.job] = ("preempt", 0)
        elif isinstance(decision, Continue):
            found[decision.job] = ("continue", 0)
        elif isinstance(decision, Admit | Resize):
            found[decision.job] = (type(decision).__name__.lower(), decision.workers)
    return found


def _p90s(plan: Plan) -> dict[str, float]:
    found: dict[str, float] = {}
    for decision in plan.decisions:
        if isinstance(decision, Promised):
            found[decision.job] = decision.promise.p90_at
        elif isinstance(decision, Forecasted):
            found[decision.job] = decision.forecast.p90_at
    return found


def _standing(state: ClusterState, job_id: str) -> float | None:
    job = state.by_id.get(job_id)
    return None if job is None or job.verdict is None else job.verdict.p90_at
