"""Chronus (SoCC 2021): deadlines by leases, chosen by a small integer program; nobody is resized.

Time is cut into leases of 20 minutes. A job needs n = ceil(remaining x 1.1 / lease) leases before
its deadline, m = floor(deadline - now, in leases) ahead. With x_it: job i holds lease t,

    maximise   sum_i s_i + sum_i x_i0 g_i / (1000 G)
    subject    sum_{t < m_i} x_it >= s_i n_i          who counts gets its leases in time
               sum_i g_i x_it <= G                    GPUs in each lease

At most 48 leases are looked ahead; what of a job's window lies behind counts as available. GPUs that
no lease takes go to the others, least remaining GPU-time first. Between two leases nothing is
stopped. HiGHS (scipy) stands for the commercial solver; it looks at no more than MOST_NODES nodes of
its tree and then takes the best leases found, so that the same jobs give the same leases anywhere.
"""

import math
from collections.abc import Sequence
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.ranking import is_movable, plan_by_rank
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.plan import Plan

LEASE_S: Final = 1_200.0
MOST_LEASES: Final = 48
MOST_JOBS: Final = 200
MOST_NODES: Final = 100  # a limit of time would let the machine decide
SAFETY: Final = 1.1
ALMOST_S: Final = 1e-3


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    forecasts = Forecasts(state, predictor)
    jobs = [job for job in state.jobs if is_movable(job)]
    since_s = state.now % LEASE_S
    boundary = min(since_s, LEASE_S - since_s) < ALMOST_S
    left_s = {job.id: forecasts.rest_s(job, _width(job), "mean") for job in jobs}
    leased: frozenset[str] = frozenset()
    if boundary and jobs:
        gpus = sum(node.gpus for node in state.nodes)
        leased = leases(jobs, left_s, gpus=gpus, now=state.now)

    def rank(job: Job) -> tuple[float, ...]:
        gpu_s = left_s[job.id] * _width(job) * job.gpus_per_worker
        if boundary:
            return (float(job.id not in leased), gpu_s)
        return (float(not job.workers), float(job.deadline_at == FOREVER), gpu_s)

    following_at = (math.floor((state.now + ALMOST_S) / LEASE_S) + 1) * LEASE_S
    return plan_by_rank(state, rank, policy="chronus", wake_at=following_at if jobs else FOREVER)


def _width(job: Job) -> int:
    return job.workers or job.widths[0]


def leases(
    jobs: Sequence[Job], left_s: dict[str, float], *, gpus: int, now: float
) -> frozenset[str]:
    """Who holds the lease that begins now."""
    cases: list[tuple[Job, int, int]] = []
    for job in jobs:
        needs = math.ceil(left_s[job.id] * SAFETY / LEASE_S) if left_s[job.id] < FOREVER else 0
        window = math.floor((job.deadline_at - now) / LEASE_S) if job.deadline_at < FOREVER else 0
        if 0 < needs <= window and _gpus(job) <= gpus:
            ahead = min(window, MOST_LEASES)
            cases.append((job, max(0, needs - (window - ahead)), ahead))
    cases.sort(key=lambda case: (case[2] - case[1], case[0].submitted_at, case[0].id))
    return _solve(cases[:MOST_JOBS], gpus) if cases else frozenset()


def _gpus(job: Job) -> int:
    return _width(job) * job.gpus_per_worker


def _solve(cases: Sequence[tuple[Job, int, int]], gpus: int) -> frozenset[str]:
    """Variables: s_i, then x_it; rows: one per job, one per lease."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    job_count, horizon = len(cases), max(ahead for _, _, ahead in cases)
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    worth = [-1.0] * job_count
    first: list[int] = []
    for number, (job, needs, ahead) in enumerate(cases):
        rows.append(number)
        columns.append(number)
        values.append(-float(needs))
        first.append(len(worth))
        for lease in range(ahead):
            rows += [number, job_count + lease]
            columns += [len(worth)] * 2
            values += [1.0, float(_gpus(job))]
            worth.append(-_gpus(job) / (1000.0 * gpus) if lease == 0 else 0.0)
    matrix = coo_array((values, (rows, columns)), shape=(job_count + horizon, len(worth))).tocsr()
    low = np.concatenate([np.zeros(job_count), np.full(horizon, -np.inf)])
    high = np.concatenate([np.full(job_count, np.inf), np.full(horizon, float(gpus))])
    solution = milp(
        np.array(worth),
        integrality=np.ones(len(worth), dtype=np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, low, high),
        options={"node_limit": MOST_NODES},
    )
    if solution.x is None:
        return frozenset()
    return frozenset(
        job.id for (job, _, _), place in zip(cases, first, strict=True) if solution.x[place] > 0.5
    )
