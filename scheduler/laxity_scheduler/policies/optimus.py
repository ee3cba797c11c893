"""Optimus (EuroSys 2018), all-reduce form: each GPU goes where it cuts remaining time most.

    gain = (remaining time now - remaining time with more) / GPUs more

Everybody gets its least width first; a job's next width is the one of best gain, so that a fall of
its curve does not hide a later rise (algorithms.md 1.5). Convergence is not modelled: epochs are given.
"""

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.surplus import budget_of_jobs, resizable_jobs, widen_by_time_saved
from laxity_scheduler.allocation.transition import plan_transition
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    forecasts = Forecasts(state, predictor)
    jobs = resizable_jobs(state)
    width = widen_by_time_saved(jobs, budget_of_jobs(state, jobs), forecasts)
    return plan_transition(state, jobs, width, policy="optimus")
