"""Pollux (OSDI 2021) with a greedy search: the least sum of reciprocal speed-ups.

    speed-up   = throughput / throughput at a fair share of the cluster
    fitness    = power mean of speed-ups with exponent -1, so the sum of 1 / speed-up is minimised
    restart    = max(age - restarts x 30, 0) / (age + 30), taken off where a width would change

The paper searches with NSGA-II every 60 s; widths here come one level at a time. Goodput needs the
gradient noise scale, which no trace of ours has: with it unknown goodput is throughput, and batch
sizes stay as they are.
"""

from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.surplus import budget_of_jobs, resizable_jobs, widen_by_gain
from laxity_scheduler.allocation.transition import plan_transition
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan

RESTART_S: Final = 30.0
LEAST_FACTOR: Final = 0.05


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    forecasts = Forecasts(state, predictor)
    jobs = resizable_jobs(state)
    gpus = budget_of_jobs(state, jobs)
    fair = max(1, gpus.whole // max(1, len(jobs)))

    def slowness(job: Job, workers: int) -> float:
        """1 / speed-up, with the restart factor."""
        curve = forecasts.curve(job)
        at_fair = max((w for w in job.widths if w <= fair), default=job.widths[0])
        ratio = curve.total_s(workers, "mean") / max(1e-9, curve.total_s(at_fair, "mean"))
        return ratio if workers == job.workers else ratio / _restart_factor(job, state.now)

    def gain(job: Job, workers: int, more: int) -> float:
        saved = slowness(job, workers) - slowness(job, more)
        return saved / ((more - workers) * job.gpus_per_worker)

    return plan_transition(state, jobs, widen_by_gain(jobs, gpus, gain), policy="pollux")


def _restart_factor(job: Job, now: float) -> float:
    if not job.workers:
        return 1.0
    age_s = now - job.submitted_at
    kept_s = max(age_s - job.preemptions * RESTART_S, 0.0)
    return max(LEAST_FACTOR, kept_s / (age_s + RESTART_S))
