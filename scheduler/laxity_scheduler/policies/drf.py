"""Dominant resource fairness (NSDI 2011) on GPUs: the next worker to whoever has the least share.

With one resource the dominant share is a job's GPUs over all GPUs. Everybody gets its least width in
order of arrival; then the smallest holder gets its next level, until nothing fits. It predicts
nothing but where a curve stops rising, and knows no deadlines.
"""

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.surplus import budget_of_jobs, resizable_jobs, widen_by_gain
from laxity_scheduler.allocation.transition import plan_transition
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    forecasts = Forecasts(state, predictor)
    jobs = resizable_jobs(state)

    def least_share(job: Job, workers: int, more: int) -> float:
        useful = forecasts.curve(job).widths
        following = next((width for width in useful if width > workers), 0)
        return 1.0 / (workers * job.gpus_per_worker) if more == following else 0.0

    width = widen_by_gain(jobs, budget_of_jobs(state, jobs), least_share)
    return plan_transition(state, jobs, width, policy="drf")
