"""Tiresias (NSDI 2019), two-dimensional least attained service: no prediction at all.

A job's attained service is its GPUs times the time it held them. Queues are cut by thresholds on it
(3,250 GPU-seconds in its simulator, 16 GPU-hours in Pollux' artifact: we take both); within a queue
the first submitted goes first. The policy wakes when a running job crosses a threshold.
"""

from bisect import bisect_right
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.ranking import plan_by_rank
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.plan import Plan

THRESHOLDS_GPU_S: Final = (3_250.0, 57_600.0)
SOON_S: Final = 1.0


def gpu_s_so_far(job: Job, now: float) -> float:
    return job.attained_gpu_s + job.gpus * (now - job.since)


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    now = state.now

    def queue(job: Job) -> tuple[float]:
        return (float(bisect_right(THRESHOLDS_GPU_S, gpu_s_so_far(job, now))),)

    return plan_by_rank(state, queue, policy="las", wake_at=_next_crossing_at(state))


def _next_crossing_at(state: ClusterState) -> float:
    """When the first running job leaves its queue, if anybody waits for that."""
    if not state.queued:
        return FOREVER
    crossings = [
        state.now + (threshold - gpu_s_so_far(job, state.now)) / job.gpus
        for job in state.running
        for threshold in THRESHOLDS_GPU_S
        if gpu_s_so_far(job, state.now) < threshold
    ]
    return min((max(crossing_at, state.now + SOON_S) for crossing_at in crossings), default=FOREVER)
