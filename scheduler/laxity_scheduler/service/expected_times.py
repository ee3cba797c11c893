"""When jobs are expected to end, and when one that waits is expected to start.

The forecasts are those that the policy decides on. Where a policy says what a job waits for, that is
shown. Where it does not, the running jobs are assumed to end one after another until the job's
least width fits.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from laxity_profiler.estimate import Predictor, Workload
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Loan, Reclaim, Wait
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.service.views.live_view import ExpectedEnd, LastReason


@runtime_checkable
class NotingPredictor(Protocol):
    """A predictor that knows what an answer of its rests on."""

    def notes(self, workload: Workload) -> str:
        """What readers of its answers for this workload should know; "" for nothing."""


def prediction_note(predictor: Predictor, workload: Workload) -> str:
    """What people should know of a prediction, such as `n=10000; all 3 runs had n=1000`."""
    return predictor.notes(workload) if isinstance(predictor, NotingPredictor) else ""


def predict_ends(
    state: ClusterState, predictor: Predictor, jobs: Iterable[Job]
) -> dict[str, ExpectedEnd]:
    """The expected ends of running jobs if nothing is decided."""
    forecasts = Forecasts(state, predictor)
    return {
        job.id: ExpectedEnd(
            state.now + forecasts.trajectory_s(job, "p50"),
            state.now + forecasts.trajectory_s(job, "p90"),
            *_part_of(job, predictor),
        )
        for job in jobs
    }


def _part_of(job: Job, predictor: Predictor) -> tuple[str, float | None, float | None, str]:
    """The part before its first epoch or after its last one: its name, since when, its usual time.

    And what keeps its start, if its pods say so.
    """
    begun_at = job.epoch_started_at
    if not job.formed and begun_at is None and job.start_began_at is not None:
        return (
            "starting",
            job.start_began_at,
            predictor.resume_cost(job.workload, job.workers).p50_s,
            job.pending,
        )
    if begun_at is not None and job.progress.epochs_done >= job.workload.epochs:
        return "finishing", begun_at, predictor.finishing_time(job.workload, job.workers).p50_s, ""
    return "", None, None, ""


def last_reasons(plan: Plan) -> dict[str, LastReason]:
    """The reason of the last decision about each job of the plan."""
    reasons_by_job: dict[str, LastReason] = {}
    for decision in plan.decisions:
        if isinstance(decision, Loan | Reclaim):
            continue
        reason = decision.reason.within(decision.job.partition("/")[0])
        if isinstance(decision, Wait):
            reasons_by_job[decision.job] = LastReason(
                reason.code, reason.text, decision.held_by, decision.expected_start_at
            )
        else:
            reasons_by_job[decision.job] = LastReason(reason.code, reason.text)
    return reasons_by_job


def predict_start(
    state: ClusterState, predictor: Predictor, job: Job
) -> tuple[tuple[str, ...], float]:
    """The jobs that hold what a queued job waits for, and when enough of them are expected to end."""
    need, size = min(job.widths), job.gpus_per_worker
    ledger, may = Ledger.of(state, job=job.id), state.eligible_nodes(job)
    if ledger.slots(size, may, needs=job.needs) >= need:
        return (), state.now
    ends = predict_ends(state, predictor, state.running)
    holders: list[str] = []
    for other in sorted(state.running, key=lambda row: (ends[row.id].p50_at, row.id)):
        if may is not None and may.isdisjoint(other.nodes):
            continue
        ledger.give(other.nodes, other.gpus_per_worker, needs=other.needs)
        holders.append(other.id)
        if ledger.slots(size, may, needs=job.needs) >= need:
            return tuple(holders), ends[other.id].p50_at
    return tuple(holders), FOREVER
