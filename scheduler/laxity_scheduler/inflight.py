"""Finishes earlier decisions of any policy, once the workers have done their part.

- A job that was asked to stop has parked at its epoch's end: its pods can go.
- A job that was asked to shrink has re-formed: the other pods can go.
- A job that does not reach an epoch's end in time is stopped at once.
- A job that has lost a node stops, and starts elsewhere.
- A job whose pods do not all run, because they do not fit or fail, goes on with those that do.
- A job on a cordoned node is asked to leave it at its epoch's end, and so is one on a lent node that
  somebody else has labelled inference again.
- A link of a chain is stopped before its wall-clock limit (`link_end`).
- Idle inference nodes are lent, and given back when inference wants them (`loans`).

The loop, what-ifs and replay all decide by `with_follow_ups`, so they cannot come apart.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.held_up import explain_held_up, hide_held_up
from laxity_scheduler.link_end import end_links
from laxity_scheduler.loans.lending import with_loans
from laxity_scheduler.model.cluster import CLOSED_POOLS, ClusterState, Pool
from laxity_scheduler.model.decision import Continue, Decision, Loan, Preempt, Reclaim, Resize
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, format_duration, reason
from laxity_scheduler.model.start_backoff import (
    FAILED_START_CODES,
    backoff_s,
    count_failed_starts,
)
from laxity_scheduler.model.withdrawn_stops import was_served
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import fit_plan
from laxity_scheduler.stateless import sparing_stateless

LEAST_WAIT_S: Final = 600.0  # a requested stop is overdue after this time ...
EPOCHS_WAITED: Final = 3.0  # ... and this many of the job's longest recent epochs
UNKNOWN_EPOCH_S: Final = 3600.0
ACTING: Final = (Preempt, Resize, Continue)


def follow_ups(state: ClusterState) -> tuple[Preempt | Resize, ...]:
    """The decisions that need no policy: at most one per job."""
    nodes = state.node_pools
    is_open = nodes.open.issuperset
    decisions = [
        decision
        for job in state.running
        if not (_is_left_alone(job) and is_open(job.nodes))
        if not job.pinned
        for decision in _follow_up_of(job, state, nodes.by_name)
    ]
    return tuple(decisions)


def _is_left_alone(job: Job) -> bool:
    """Whether nothing was asked of it, and all of its pods run: nearly always."""
    return (
        job.stop_requested_at is None
        and job.parked_epoch is None
        and job.fitting_workers is None
        and not job.resize_to
    )


def overdue_at(job: Job) -> float:
    """When a job that was asked to stop is stopped without waiting for its epoch's end."""
    if job.stop_requested_at is None:
        return FOREVER
    known_s = max(job.progress.epoch_s, default=job.workload.user_epoch_s or UNKNOWN_EPOCH_S)
    return job.stop_requested_at + max(LEAST_WAIT_S, EPOCHS_WAITED * known_s)


def with_follow_ups(policy: Policy, lend: Callable[[Policy], Policy] = with_loans) -> Policy:
    """The policy, with follow-ups first; the policy's own acts on jobs that have one are dropped.

    Jobs that hold no state are stopped where nothing else keeps a promise (`stateless`). No job is
    suspended before its start was seen; that is decided again once it was. The plan fits: whatever a
    policy decides, what does not is `Plan.dropped`.
    """

    def decide_with_follow_ups(state: ClusterState, predictor: Predictor) -> Plan:
        visible_state, held = hide_held_up(state)
        told, next_at = explain_held_up(held, state, predictor)
        due, (links, link_at) = follow_ups(state), end_links(state, predictor)
        visible_state = visible_state.lock_holds({d.job for d in (*due, *links)})
        plan = sparing_stateless(lend(policy))(visible_state, predictor)
        spared = {d.job for d in plan.decisions if isinstance(d, Continue)}
        ahead = (d for d in due if not (d.job in spared and _is_requested_stop(d)))
        first = _one_of_each((*ahead, *links))
        done = frozenset(d.job for d in first)
        rest = tuple(d for d in plan.decisions if not (isinstance(d, ACTING) and d.job in done))
        failed = {d.job for d in first if d.reason.code in FAILED_START_CODES}
        # These go first: of the decisions about a job, the reason of the last one is shown.
        about_failed = tuple(d for d in rest if _is_about(d, failed))
        rest = tuple(d for d in rest if not _is_about(d, failed))
        decided = (*told, *about_failed, *first, *rest)
        in_time = tuple(d for d in decided if not _is_too_soon(d, state))
        stopping = [job for job in state.running if job.stop_requested_at is not None]
        overdue = (overdue_at(job) for job in stopping if not job.pinned)
        wake_at = min((instant for instant in overdue if instant > state.now), default=FOREVER)
        return fit_plan(Plan(in_time, min(plan.wake_at, wake_at, next_at, link_at)), state)

    return decide_with_follow_ups


def _one_of_each(decisions: Sequence[Preempt | Resize]) -> tuple[Preempt | Resize, ...]:
    """The stop of a job among them, if there is one; else the first decision about it."""
    by_job: dict[str, Preempt | Resize] = {}
    for decision in decisions:
        earlier = by_job.setdefault(decision.job, decision)
        if isinstance(decision, Preempt) and isinstance(earlier, Resize):
            by_job[decision.job] = decision
    return tuple(by_job.values())


def _is_requested_stop(decision: Preempt | Resize) -> bool:
    """Whether it only carries out a stop that was requested before."""
    return decision.reason.code in {
        "stopped_at_epoch",
        "stopped_at_step",
        "stopped_after_epoch",
        "stopped_stateless",
        "stop_overdue",
    }


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
    """The follow-up of one job, if it has one; `pools` are those of the nodes, by id."""
    lost = next((node for node in job.nodes if node not in pools), None)
    if lost is not None:
        return (_stop_now(job, state, reason("node_lost", node=lost)),)
    if job.parked_epoch is not None and job.stop_requested_at is not None:
        return (_stop_now(job, state, _parking_reason(job, pools)),)
    if state.now >= overdue_at(job):
        return (_stop_now(job, state, reason("stop_overdue", asked_at=job.stop_requested_at)),)
    if job.fitting_workers is not None and job.fitting_workers < job.workers:
        return (_fit_to_running_pods(job),)
    if 0 < job.resize_to < job.workers and job.formed == job.resize_to:
        cause = reason("reformed", workers=job.resize_to)
        return (Resize(job.id, job.resize_to, job.nodes[: job.resize_to], "now", cause),)
    return _leave_closed_node(job, state, pools)


def _leave_closed_node(
    job: Job, state: ClusterState, pools: Mapping[str, Pool]
) -> tuple[Preempt | Resize, ...]:
    """Ask a job on a closed node to stop at its epoch's end, unless it was resized this instant."""
    closed = next((node for node in job.nodes if pools[node] in CLOSED_POOLS), None)
    leaves = job.preemptible and job.holds_state
    if closed is None or not leaves or job.stop_requested_at is not None:
        return ()
    if job.changed_now(state.now):
        return ()
    if state.inference is not None:  # where nodes are lent, flexible workers leave alone
        width = job.width_without([node for node in job.nodes if pools[node] in CLOSED_POOLS])
        if width:
            return _shrink_off_closed_node(job, width, closed)
    if pools[closed] == "cordoned":
        return (Preempt(job.id, "epoch", job.id, reason("node_cordoned", node=closed)),)
    if state.inference is None:  # nothing is lent here: who put it there knows why
        return ()
    return (Preempt(job.id, "epoch", job.id, reason("node_taken_back", node=closed)),)


def _shrink_off_closed_node(job: Job, width: int, closed: str) -> tuple[Resize, ...]:
    if 0 < job.resize_to <= width:
        return ()
    workers = {"from_workers": job.workers, "workers": width}
    cause = reason("shrink_off_closed_node", node=closed, **workers)
    return (Resize(job.id, width, job.nodes[:width], "epoch", cause),)


def _fit_to_running_pods(job: Job) -> Preempt | Resize:
    """Let a job whose pods do not all run go on with those that do, or suspend it."""
    fits = job.fitting_workers or 0
    goes_on = fits in job.widths
    if job.displaced:  # evicted or preempted by another party: no start has failed
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
    """The job for which the GPUs are held; "" if that job has started or grown meanwhile.

    Also "" if the victim's user has forbidden meanwhile that it is stopped for others.
    """
    other = state.by_id.get(job.stop_for)
    if other is None or not (job.preemptible or other.id == job.id):
        return ""
    return "" if was_served(other, job) else other.id


def _parking_reason(job: Job, pools: Mapping[str, Pool]) -> Reason:
    leaves = any(pools[node] in CLOSED_POOLS for node in job.nodes)
    if job.stop_for == job.id and job.wall_limit_s < FOREVER and not leaves:
        if not job.holds_state:
            return reason("link_lost", epochs=job.parked_epoch, limit_s=job.wall_limit_s)
        return reason("link_ended", epoch=job.parked_epoch, limit_s=job.wall_limit_s)
    beneficiary = _beneficiary_text(job)
    if job.saved_part:
        inside = (job.parked_epoch or 0) + 1
        return reason("stopped_at_step", epoch=inside, beneficiary=beneficiary)
    if job.stops_anywhere:  # a script saves after it is told, not before
        return reason("stopped_after_epoch", epoch=job.parked_epoch, beneficiary=beneficiary)
    code = "stopped_at_epoch" if job.holds_state else "stopped_stateless"
    return reason(code, epoch=job.parked_epoch, beneficiary=beneficiary)


def _beneficiary_text(job: Job) -> str:
    return "a start on other nodes" if job.stop_for == job.id else job.stop_for or "others"
