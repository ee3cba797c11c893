"""Traces that are made: closed batches of real jobs, and jobs drawn from stated distributions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import Trace, TraceJob

BATCH_S: Final = 3600.0


def draw_closed_batch(trace: Trace, *, jobs: int, seed: int) -> Trace:
    """So many jobs of a trace, drawn without replacement, submitted uniformly within an hour.

    On an open trace the last long job decides the makespan; on a closed batch the policy does.
    Deadlines keep their distance from the submission.
    """
    draw = np.random.default_rng(seed)
    count = min(jobs, len(trace.jobs))
    chosen = draw.choice(len(trace.jobs), size=count, replace=False)
    instants = np.sort(draw.uniform(0.0, BATCH_S, size=count))
    moved = [
        replace(
            job,
            submitted_at=float(instant),
            deadline_at=float(instant) + job.deadline_at - job.submitted_at,
        )
        for job, instant in zip([trace.jobs[row] for row in chosen], instants, strict=True)
    ]
    return Trace(f"{trace.name}[{count} jobs, seed {seed}]", tuple(moved))


@dataclass(frozen=True, slots=True)
class Mix:
    """What jobs are drawn from.

    Arrivals are Poisson with `jobs_per_hour`. Run times on one GPU are log-normal with median
    `median_s` and spread `sigma`; deadlines are submit + U(`tightest`, `loosest`) x the run time on
    `asked` GPUs; a share `best_effort` has none. Speed on w GPUs is w / (1 + serial (w - 1)).
    """

    jobs: int = 200
    jobs_per_hour: float = 20.0
    median_s: float = 7_200.0
    sigma: float = 1.0
    asked: Sequence[int] = (1, 2, 4, 8)
    levels: Sequence[int] = (1, 2, 4, 8)
    serial: float = 0.1
    tightest: float = 1.2
    loosest: float = 3.0
    best_effort: float = 0.0


def generate(mix: Mix, *, seed: int) -> Trace:
    """Jobs of a mix; the same seed gives the same jobs."""
    draw = np.random.default_rng(seed)
    gaps_s = draw.exponential(3600.0 / mix.jobs_per_hour, size=mix.jobs)
    instants = np.cumsum(gaps_s)
    alone_s = mix.median_s * np.exp(mix.sigma * draw.standard_normal(mix.jobs))
    gpus_asked = draw.choice(np.asarray(mix.asked), size=mix.jobs)
    factor = draw.uniform(mix.tightest, mix.loosest, size=mix.jobs)
    free = draw.random(mix.jobs) < mix.best_effort
    speeds = tuple(level / (1.0 + mix.serial * (level - 1)) for level in mix.levels)
    table = ThroughputTable(tuple(mix.levels), speeds)
    jobs = []
    for row in range(mix.jobs):
        gpus = int(gpus_asked[row])
        run_s = float(alone_s[row]) / table.speed(gpus)
        submitted_at = float(instants[row])
        jobs.append(
            TraceJob(
                id=f"made-{row}",
                submitted_at=submitted_at,
                duration_s=run_s,
                gpus=gpus,
                deadline_at=math.inf if free[row] else submitted_at + float(factor[row]) * run_s,
                service_class="best_effort" if free[row] else "hard",
                model="made",
                iterations=float(alone_s[row]),
                table=table,
            )
        )
    return Trace(f"generated[{mix.jobs} jobs, seed {seed}]", tuple(jobs))
