"""The widths that a policy is heading for on a snapshot, though GPUs must first become free for them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import Policy
from laxity_scheduler.frame.curve import Curve
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Preempt, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan

ROUNDS: Final = 4
HOUR_S: Final = 3_600.0


def settle_widths(
    state: ClusterState, decide: Policy, predictor: Predictor, plan: Plan | None = None
) -> dict[str, int]:
    """Workers by job id once what was decided has been carried out: decided anew until nothing changes.

    `plan` is what was decided first, if that is known. Whatever `decide` raises is raised.
    """
    plan = plan or decide(state, predictor)
    for _ in range(ROUNDS):
        after = carry_out_at_once(state, plan)
        if after is state:
            break
        state = after
        plan = decide(state, predictor)
    return {job.id: job.workers for job in state.jobs}


def carry_out_at_once(state: ClusterState, plan: Plan) -> ClusterState:
    """The snapshot as if jobs re-formed and stopped in no time; itself if the plan changes no width."""
    rows: dict[str, Job] = {}
    freed: Counter[str] = Counter()
    for decision in plan.decisions:
        if isinstance(decision, Admit | Resize | Preempt):
            before = rows.get(decision.job, state.by_id[decision.job])
            after = rows[decision.job] = _row_after(before, decision)
            for node in before.nodes:
                freed[node] += before.gpus_per_worker
            for node in after.nodes:
                freed[node] -= before.gpus_per_worker
    if not rows:
        return state
    return replace(
        state,
        nodes=tuple(
            [replace(node, free_gpus=node.free_gpus + freed[node.id]) for node in state.nodes]
        ),
        jobs=tuple([rows.get(job.id, job) for job in state.jobs]),
        holds=(),
    )


def training_rate(job: Job, curve: Curve, width: int) -> float:
    """The share of the whole training done in a second on so many workers; 0 if that is not known."""
    epoch_s = curve.epoch_s(width, "mean") if width in curve.totals else 0.0
    return 1.0 / (max(1, job.workload.epochs) * epoch_s) if epoch_s > 0.0 else 0.0


def reward_rate(state: ClusterState, widths: Mapping[str, int], predictor: Predictor) -> float:
    """Shares of whole trainings an hour, summed over jobs, predicted for these widths."""
    forecasts = Forecasts(state, predictor)
    return HOUR_S * sum(
        training_rate(job, forecasts.curve(job), widths.get(job.id, 0)) for job in state.jobs
    )


def _row_after(job: Job, decision: Admit | Resize | Preempt) -> Job:
    nodes = () if isinstance(decision, Preempt) else decision.nodes
    return replace(
        job,
        workers=len(nodes),
        nodes=nodes,
        formed=len(nodes),
        resize_to=0,
        stop_requested_at=None,
        stop_for="",
        parked_epoch=None,
    )
