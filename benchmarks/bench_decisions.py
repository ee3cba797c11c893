"""How long one decision takes, decide and check together, in CPU time of one core without loading.

A *cold* decision finds nothing promised and nothing read: every job is judged and most are started.
A *warm* one finds all under way, and those 2 % of them changed that have ended an epoch in the last
two seconds. *Contended*: there are GPUs for one job in twenty at its widest, so that promises are
planned over time. *Tied*: one job in ten may use only a fifth of the nodes. Nodes have 8 GPUs.

The baseline is what a plain loop does with the same rows: sort them by deadline and count who fits;
`ratio` says how many times as long the policy takes, which says more than milliseconds on a machine
that others use as well. `decision_cold_ms` and `decision_warm_p99_ms` are those of the slower of
ElasticFlow and the QoS policy.
"""

import gc
import time
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.results import Metric, figure
from laxity_lab.warm import warm_up
from laxity_lab.world.crowd import EPOCHS_S, TIED, crowd, underway
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Policy
from laxity_scheduler.plan_check import apply_plan, check_plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import costs

WARM_DECISIONS: Final = 40
STEP_S: Final = 2.0
POLICIES: Final = ("elasticflow", "qos")


def decision_figures(*, quick: bool) -> dict[str, Metric]:
    """All figures of decisions; `quick`: a tenth of the jobs."""
    jobs = 1_000 if quick else 10_000
    figures: dict[str, Metric] = {}
    for name in POLICIES:
        for kind, nodes in (("", jobs // 2), ("_contended", jobs // 20)):
            figures |= _time_figures(f"decision_{name}{kind}", name, jobs=jobs, nodes=nodes)
        prefix = f"decision_{name}_tied"
        figures |= _time_figures(prefix, name, jobs=jobs, nodes=jobs // 2, tied=TIED)
    slowest = {
        f"decision_{kind}": max(
            (figures[f"decision_{name}_{kind}"] for name in POLICIES), key=lambda one: one["value"]
        )
        for kind in ("cold_ms", "warm_p50_ms", "warm_p99_ms")
    }
    all_figures = slowest | figures
    if not quick:
        for name in POLICIES:
            cold_ms, _ = decisions(name, jobs=100_000, nodes=50_000, warm=0)
            plain_ms = plain_decision_ms(crowd(jobs=100_000, nodes=50_000, seed=0)[1])
            all_figures[f"decision_{name}_100000_jobs_ms"] = figure(cold_ms, "ms", plain_ms)
    return all_figures


def _time_figures(
    prefix: str, name: str, *, jobs: int, nodes: int, tied: float = 0.0
) -> dict[str, Metric]:
    cold_ms, warm_ms = decisions(name, jobs=jobs, nodes=nodes, tied=tied)
    plain_ms = plain_decision_ms(crowd(jobs=jobs, nodes=nodes, seed=0)[1])
    return {
        f"{prefix}_cold_ms": figure(cold_ms, "ms", plain_ms),
        f"{prefix}_warm_p50_ms": figure(float(np.median(warm_ms)), "ms", plain_ms),
        f"{prefix}_warm_p99_ms": figure(float(np.quantile(warm_ms, 0.99)), "ms", plain_ms),
    }


def plain_decision_ms(state: ClusterState, *, times: int = 3) -> float:
    """Sort by deadline, count who fits at its least width: the baseline, not the product."""
    took = []
    for _ in range(times):
        began = time.process_time()
        free, starts = sum(node.free_gpus for node in state.nodes), []
        for job in sorted(state.jobs, key=lambda job: (job.deadline_at, job.id)):
            gpus = job.widths[0] * job.gpus_per_worker
            if not job.workers and gpus <= free:
                free -= gpus
                starts.append((job.id, job.widths[0]))
        took.append(1e3 * (time.process_time() - began))
    return min(took)


def decisions(
    name: str, *, jobs: int, nodes: int, warm: int = WARM_DECISIONS, tied: float = 0.0
) -> tuple[float, list[float]]:
    """Milliseconds of a cold decision (decide and check), and of warm ones."""
    truths, state = crowd(jobs=jobs, nodes=nodes, seed=0, tied=tied)
    model = costs("live", cluster_gpus=state.total_gpus)
    predictor = NoisyPredictor(truths, model)
    decide = find(name).policy()
    warm_up(decide, model, each=jobs // nodes, tied=tied)
    gc.collect()
    gc.freeze()
    plan_s, state = _time_decision(decide, state, predictor)
    took = []
    if warm:
        state = underway(state, np.random.default_rng(2))
        _, state = _time_decision(decide, state, predictor)
    for _ in range(warm):
        state = later(state)
        gc.collect()
        once_s, state = _time_decision(decide, state, predictor)
        took.append(1e3 * once_s)
    gc.unfreeze()
    return 1e3 * plan_s, took


def _time_decision(
    decide: Policy, state: ClusterState, predictor: NoisyPredictor
) -> tuple[float, ClusterState]:
    gc.disable()
    began = time.process_time()
    plan = decide(state, predictor)
    check_plan(plan, state)
    took_s = time.process_time() - began
    gc.enable()
    return took_s, apply_plan(plan, state)


def later(state: ClusterState) -> ClusterState:
    """Two seconds on: jobs whose epoch has ended by then, about 2 % of all, are in the next one."""
    now = state.now + STEP_S
    rows = [
        _epoch_on(job, now)
        if job.formed
        and job.epoch_started_at is not None
        # an epoch at the width that it had formed at
        and job.epoch_started_at + EPOCHS_S[job.formed] <= now
        else job
        for job in state.jobs
    ]
    return replace(state, now=now, jobs=tuple(rows))


def _epoch_on(job: Job, now: float) -> Job:
    done = min(job.workload.epochs - 1, job.progress.epochs_done + 1)
    progress = replace(job.progress, epochs_done=done)
    return replace(
        job,
        progress=progress,
        epoch_started_at=now,
        formed=job.resize_to or job.workers,
        since=now,
    )
