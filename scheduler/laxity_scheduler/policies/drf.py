"""Dominant resource fairness (NSDI 2011) on GPUs: the next worker to whoever has the least share.

With one resource the dominant share is a job's GPUs over all GPUs. Everybody gets its least width in
order of arrival; then the smallest holder gets its next level, until nothing fits. It predicts
nothing but where a curve stops rising, and knows no deadlines.
"""

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.surplus import budget_of_jobs, resizable_jobs, widen_by_least_share
from laxity_scheduler.allocation.transition import plan_transition
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    forecasts = Forecasts(state, predictor)
    jobs = resizable_jobs(state)
    width = widen_by_least_share(jobs, budget_of_jobs(state, jobs), forecasts)
    return plan_transition(state, jobs, width, policy="drf")
