"""Jobs drawn from measured throughput tables, with Poisson arrivals at a stated load.

    load = GPU-seconds at the width asked for / (GPUs x time)

Models and batch sizes are drawn evenly, run times at the width asked for log-normally (the Chronus
and ITP traces are of that shape, and longer). Where the tables know trainings, each job is one of these.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_lab.traces.throughput_tables import Tables, ThroughputTable
from laxity_lab.traces.traces import Trace, TraceJob

MOST_ASKED: Final = 8
LONGEST_S: Final = 2.0 * 86_400.0


@dataclass(frozen=True, slots=True)
class ArrivalMix:
    """`jobs` for a cluster of `gpus`; median run time `median_s`, spread `sigma` of its logarithm.

    `tightness`: deadlines are submit + U(tightness) x the run time at the width asked for; none: ().
    """

    jobs: int = 60
    gpus: int = 32
    load: float = 0.8
    median_s: float = 5_400.0
    sigma: float = 1.2
    tightness: tuple[float, float] | tuple[()] = ()


def make_trace(tables: Tables, mix: ArrivalMix, *, seed: int) -> Trace:
    """The same seed gives the same jobs."""
    draw = np.random.default_rng([seed, mix.jobs, mix.gpus, round(1_000 * mix.load)])
    seen = [(key, size) for key in sorted(tables) for size in tables[key].trainings]
    keys = [key for key, _ in seen] if seen else sorted(tables)
    rows = draw.integers(len(keys), size=mix.jobs).tolist()
    chosen = [keys[row] for row in rows]
    made_s = mix.median_s * np.exp(mix.sigma * draw.standard_normal(mix.jobs))
    widths = [_draw_width(tables[key], draw) for key in chosen]
    if seen:
        made_s = np.array(
            [
                seen[row][1] / tables[key].speed(gpus)
                for row, key, gpus in zip(rows, chosen, widths, strict=True)
            ]
        )
    runs_s = np.minimum(LONGEST_S, made_s).tolist()
    work_gpu_s = sum(run_s * gpus for run_s, gpus in zip(runs_s, widths, strict=True))
    gap_s = work_gpu_s / mix.jobs / (mix.load * mix.gpus)
    instants = np.cumsum(draw.exponential(gap_s, size=mix.jobs)).tolist()
    factors = draw.uniform(*mix.tightness, size=mix.jobs).tolist() if mix.tightness else []
    jobs = [
        TraceJob(
            id=f"made-{number}",
            submitted_at=submitted_at,
            duration_s=run_s,
            gpus=gpus,
            deadline_at=submitted_at + factors[number] * run_s if factors else math.inf,
            service_class="hard" if factors else "best_effort",
            model=key[0],
            batch_size=key[1],
            iterations=run_s * tables[key].speed(gpus),
            table=tables[key],
        )
        for number, (key, run_s, gpus, submitted_at) in enumerate(
            zip(chosen, runs_s, widths, instants, strict=True)
        )
    ]
    return Trace(f"made[{mix.jobs} jobs, load {mix.load:g}, seed {seed}]", tuple(jobs))


def _draw_width(table: ThroughputTable, draw: np.random.Generator) -> int:
    """One of the widths worth having, up to 8."""
    levels = [level for level in table.levels if level <= MOST_ASKED] or list(table.levels[:1])
    return levels[int(draw.integers(len(levels)))]
