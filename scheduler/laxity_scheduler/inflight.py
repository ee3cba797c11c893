"""What any policy's stops and shrinkings come to, once the workers have done their part.

A job that was asked to stop parks at its epoch's end: now its pods can go. One that was asked to
shrink has re-formed: the others can go. One that does not reach an epoch's end in a sane time is
stopped as it is, one that has lost a node starts anew elsewhere, and one whose pods do not all start,
for want of room or since they fail, goes on with those that do. One on a cordoned node is asked to
leave it at its epoch's end.
"""

from collections.abc import Collection, Mapping
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import Policy
from laxity_scheduler.model.cluster import ClusterState, Pool
from laxity_scheduler.model.decision import Continue, Decision, Loan, Preempt, Reclaim, Resize
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, format_duration, reason
from laxity_scheduler.model.stop_requests import was_served
from laxity_scheduler.plan import Plan
from laxity_scheduler.start_backoff import (
    FAILED_START_CODES,
    backoff_s,
    count_failed_starts,
    hide_backed_off_jobs,
)

LEAST_WAIT_S: Final = 600.0  # an asked-for stop is overdue after so long ...
EPOCHS_WAITED: Final = 3.0  # ... and so many of the job's longest recent epochs
UNKNOWN_EPOCH_S: Final = 3600.0
ACTING: Final = (Preempt, Resize, Continue)


def follow_ups(state: ClusterState) -> tuple[Preempt | Resize, ...]:
    """The decisions that need no policy: at most one per job."""
    pools = {node.id: node.pool for node in state.nodes}
    decisions = [
        decision
        for job in state.running
        if not job.pinned
        for decision in _follow_up_of(job, state, pools)
    ]
    return tuple(decisions)


def overdue_at(job: Job) -> float:
    """When a job that was asked to stop is stopped as it is."""
    if job.stop_requested_at is None:
        return FOREVER
    known_s = max(job.progress.epoch_s, default=job.workload.user_epoch_s or UNKNOWN_EPOCH_S)
    return job.stop_requested_at + max(LEAST_WAIT_S, EPOCHS_WAITED * known_s)


def with_follow_ups(policy: Policy) -> Policy:
    """The policy, with follow-ups first; of a job that has one, the policy changes nothing.

    Nobody is suspended before his start was seen: that is decided again when it was.
    """

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        visible_state, next_at = hide_backed_off_jobs(state)
        plan = policy(visible_state, predictor)
        spared = {d.job for d in plan.decisions if isinstance(d, Continue)}
        first = tuple(
            d for d in follow_ups(state) if not (d.job in spared and _is_requested_stop(d))
        )
        done = frozenset(d.job for d in first)
        rest = tuple(d for d in plan.decisions if not (isinstance(d, ACTING) and d.job in done))
        failed = {d.job for d in first if d.reason.code in FAILED_START_CODES}
        verdicts_of_failed = tuple(
            d for d in rest if _is_about(d, failed)
        )  # first: the last word is shown
        rest = tuple(d for d in rest if not _is_about(d, failed))
        in_time = tuple(d for d in verdicts_of_failed + first + rest if not _is_too_soon(d, state))
        overdue = (overdue_at(job) for job in state.running if not job.pinned)
        wake_at = min((instant for instant in overdue if instant > state.now), default=FOREVER)
        return Plan(in_time, min(plan.wake_at, wake_at, next_at))

    return decide


def _is_requested_stop(decision: Preempt | Resize) -> bool:
    """Whether it only carries out the stop that was asked for."""
    return decision.reason.code in {"stopped_at_epoch", "stop_overdue"}


def _is_about(decision: Decision, jobs: Collection[str]) -> bool:
    return not isinstance(decision, Loan | Reclaim) and decision.job in jobs


def _is_too_soon(decision: Decision, state: ClusterState) -> bool:
    if not isinstance(decision, Preempt) or decision.at != "now":
        return False
    job = state.by_id.get(decision.job)
    return job is not None and not job.start_seen


def _follow_up_of(
    job: Job, state: ClusterState, pools: Mapping[str, Pool]
) -> tuple[Preempt | Resize, ...]:
    """What is to be done about one job; `pools` are those of the nodes, by id."""
    lost = next((node for node in job.nodes if node not in pools), None)
    if lost is not None:
        return (_stop_now(job, state, reason("node_lost", node=lost)),)
    if job.parked_epoch is not None and job.stop_requested_at is not None:
        cause = reason(
            "stopped_at_epoch", epoch=job.parked_epoch, beneficiary=_beneficiary_text(job)
        )
        return (_stop_now(job, state, cause),)
    if state.now >= overdue_at(job):
        return (_stop_now(job, state, reason("stop_overdue", asked_at=job.stop_requested_at)),)
    if job.fitting_workers is not None and job.fitting_workers < job.workers:
        return (_fit_to_running_pods(job),)
    if 0 < job.resize_to < job.workers and job.formed == job.resize_to:
        cause = reason("reformed", workers=job.resize_to)
        return (Resize(job.id, job.resize_to, job.nodes[: job.resize_to], "now", cause),)
    return _leave_cordoned_node(job, state, pools)


def _leave_cordoned_node(
    job: Job, state: ClusterState, pools: Mapping[str, Pool]
) -> tuple[Preempt | Resize, ...]:
    """The stop at its epoch's end of a job on a cordoned node; what was just resized has a moment."""
    cordoned = next((node for node in job.nodes if pools[node] == "cordoned"), None)
    if cordoned is None or not job.preemptible or job.stop_requested_at is not None:
        return ()
    if job.width_changed_at is not None and job.width_changed_at >= state.now:
        return ()
    return (Preempt(job.id, "epoch", job.id, reason("node_cordoned", node=cordoned)),)


def _fit_to_running_pods(job: Job) -> Preempt | Resize:
    """Not all pods of an admitted job run: it goes on with those that do, or is suspended."""
    fits = job.fitting_workers or 0
    goes_on = fits in job.widths
    if job.displaced:  # by somebody who empties its node, or needs it more: no start has failed
        then = "the others go on" if goes_on else "it starts anew where there is room"
        cause = reason("worker_displaced", why=job.displaced, then=then)
        return _shrink_now(job, fits, cause) if goes_on else Preempt(job.id, "now", "", cause)
    again_s = 0.0 if goes_on else backoff_s(count_failed_starts(job))
    then = f"; it is tried again in {format_duration(again_s)}" if again_s else ""
    if job.died:
        died = job.died
        cause = reason("workers_fail", running=fits, workers=job.workers, died=died, then=then)
    else:
        pending = f": {job.pending}" if job.pending else ""
        cause = reason("pods_do_not_fit", running=fits, workers=job.workers, why=pending, then=then)
    return _shrink_now(job, fits, cause) if goes_on else Preempt(job.id, "now", "", cause)


def _shrink_now(job: Job, workers: int, cause: Reason) -> Resize:
    return Resize(job.id, workers, job.nodes[:workers], "now", cause)


def _stop_now(job: Job, state: ClusterState, cause: Reason) -> Preempt:
    return Preempt(job.id, "now", _current_beneficiary(job, state), cause)


def _current_beneficiary(job: Job, state: ClusterState) -> str:
    """For whom its GPUs are held: nobody, if that job has started or grown since it was asked.

    Nobody either if its user has forbidden meanwhile that it is stopped for others.
    """
    other = state.by_id.get(job.stop_for)
    if other is None or not (job.preemptible or other.id == job.id):
        return ""
    return "" if was_served(other, job) else other.id


def _beneficiary_text(job: Job) -> str:
    return "a start on other nodes" if job.stop_for == job.id else job.stop_for or "its user"
