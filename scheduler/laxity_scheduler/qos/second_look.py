"""A second look before a refusal: who finds no room behind all claims is tried as if promised.

The first look plans claims alone, in a few orders. A decision does more: it stops, narrows and widens
others. So two questions are asked of the snapshot in which the job holds its promise:

1. planned anew in order of deadline, at the ends of epochs, is nobody late who would not be without it
   (`shares.promised_widths`, all nodes counted as one)?
2. decided anew, is no promise in danger that was in time, and is nobody refused who would be promised?

If both hold, that decision is the plan, and what it says of the job is its promise.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Promised, Refuse
from laxity_scheduler.model.job import Job, Promise
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.shares.promised_widths import plan_promises

NO_ROOM: Final = frozenset(
    {"capacity_promised_to_others", "quota_promised_to_others", "capacity_freed_too_late"}
)
CROWD: Final = 2_000  # jobs from which on a decision has one look: a look costs as much again
LEAST_EPOCHS: Final = 3  # of one or two, one that ends late leaves no epoch to make up for it

Decide = Callable[
    [ClusterState, frozenset[str]], Plan
]  # with the jobs that are assumed to be promised


def look_again(decide: Decide, state: ClusterState, predictor: Predictor, most: int) -> Plan:
    """The plan, with the promises that a second look gives; at most so many looks."""
    plan, assumed, tried = decide(state, frozenset()), frozenset[str](), set[str]()
    most = min(most, 1) if len(state.jobs) >= CROWD else most
    late: frozenset[str] | None = None  # as all promises are planned anew
    while len(tried) < most and (job := _next_refused(plan, state, tried)) is not None:
        tried.add(job.id)
        with_job = assumed | {job.id}
        trial_state = _assume_promised(state, with_job)
        late = _find_late(state, predictor) if late is None else late
        trial_late = _find_late(trial_state, predictor)
        if not trial_late <= late:
            continue
        trial = decide(trial_state, with_job)
        if _keeps_all(trial, trial_state, _newly_promised(plan, state) | {job.id}):
            plan, assumed, late = trial, with_job, trial_late
    return plan


def is_in_time(job: Job) -> bool:
    """Whether it holds a promise that was last said to be in time."""
    return isinstance(job.verdict, Promise) and job.verdict.p90_at <= job.verdict.deadline_at


def _next_refused(plan: Plan, state: ClusterState, tried: Collection[str]) -> Job | None:
    """The first newcomer that is refused for want of room and has not been looked at again."""
    for decision in plan.decisions:
        if isinstance(decision, Refuse) and decision.reason.code in NO_ROOM:
            job = state.by_id[decision.job]
            if job.id not in tried and _may_be_tried(job, state):
                return job
    return None


def _may_be_tried(job: Job, state: ClusterState) -> bool:
    """Not where a namespace may hold only so many promised GPU-seconds: the first look counts those.

    Nor where a worker needs several GPUs of one node: both questions count GPUs, not nodes.
    """
    epochs = job.workload.epochs - job.progress.epochs_done
    is_new = not isinstance(job.verdict, Promise)  # else its old promise stands
    is_plain = job.gpus_per_worker == 1 or len(state.nodes) == 1
    is_plain &= job.namespace not in (state.budgets or {})
    return is_new and is_plain and epochs >= LEAST_EPOCHS


def _find_late(state: ClusterState, predictor: Predictor) -> frozenset[str]:
    return frozenset(plan_promises(state, predictor).late)


def _assume_promised(state: ClusterState, names: frozenset[str]) -> ClusterState:
    """The snapshot in which these jobs hold the promise that they ask for.

    How it is kept is not known yet: they are planned before all others that wait.
    """
    rows = [_hold_promise(job) if job.id in names else job for job in state.jobs]
    return replace(state, jobs=tuple(rows))


def _hold_promise(job: Job) -> Job:
    due_at = job.deadline_at
    fits = reason("fits", p90_at=due_at, slack_s=0.0, workers=job.widths[0])
    return replace(job, verdict=Promise(due_at, due_at, due_at, (), fits), asked=False)


def _newly_promised(plan: Plan, state: ClusterState) -> frozenset[str]:
    """Who asked and is promised."""
    promised = [d.job for d in plan.decisions if isinstance(d, Promised)]
    return frozenset([job for job in promised if state.by_id[job].asked])


def _keeps_all(trial: Plan, state: ClusterState, given: frozenset[str]) -> bool:
    """Whether all of these are promised, and nobody is in danger who was in time."""
    promises = {d.job: d.promise for d in trial.decisions if isinstance(d, Promised)}
    in_danger = {job for job, promise in promises.items() if promise.p90_at > promise.deadline_at}
    return given <= promises.keys() and not any(
        job in given or is_in_time(state.by_id[job]) for job in in_danger
    )
