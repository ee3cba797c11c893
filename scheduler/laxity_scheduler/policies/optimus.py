"""Optimus (EuroSys 2018), all-reduce form: each GPU goes where it cuts remaining time most.

    gain = (remaining time now - remaining time with more) / GPUs more

Everybody gets its least width first; a job's next width is the one of best gain, so that a fall of
its curve does not hide a later rise (algorithms.md 1.5). Convergence is not modelled: epochs are given.
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

    def gain(job: Job, workers: int, more: int) -> float:
        curve = forecasts.curve(job)
        saved_s = curve.total_s(workers, "mean") - curve.total_s(more, "mean")
        if job.workers and more != job.workers:
            saved_s -= curve.reform_s(more, "mean")
        return saved_s / ((more - workers) * job.gpus_per_worker)

    width = widen_by_gain(jobs, budget_of_jobs(state, jobs), gain)
    return plan_transition(state, jobs, width, policy="optimus")
