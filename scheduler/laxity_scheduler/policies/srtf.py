"""Shortest remaining time first, preemptive, believing that stopping costs nothing.

A baseline (algorithms.md 7.1): the mean remaining time at the width asked for ranks all jobs.
"""

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.ranking import plan_by_rank
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    forecasts = Forecasts(state, predictor)

    def remaining(job: Job) -> tuple[float]:
        width = job.workers or job.widths[0]
        total_s = forecasts.curve(job).total_s(width, "mean")
        done = forecasts.phi(job, "mean") * forecasts.curve(job).epoch_s(width, "mean")
        return (total_s - done,)

    return plan_by_rank(state, remaining, policy="srtf")
