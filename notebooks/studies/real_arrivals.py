"""Jobs of throughput tables that arrive and last as those of a real trace, at a stated load."""

from dataclasses import replace

import numpy as np

from laxity_lab.policy_training.made_jobs import LONGEST_S, ArrivalMix
from laxity_lab.traces.throughput_tables import Tables
from laxity_lab.traces.traces import Trace, TraceJob
from studies.windows import draw_window

SHORTEST_S = 60.0


def borrow_arrivals(trace: Trace, tables: Tables, mix: ArrivalMix, *, seed: int) -> Trace:
    """`mix.jobs` consecutive jobs from a random place on; the gaps between them are scaled to the load.

    Run times, bursts and gaps relative to one another are the trace's, and so are widths, up to the
    widest of the table. Models and batch sizes are drawn evenly.
    """
    draw = np.random.default_rng(seed)
    window, keys = draw_window(trace, mix.jobs, draw), sorted(tables)
    chosen = [keys[row] for row in draw.integers(len(keys), size=len(window))]
    jobs = [
        _as_table_job(job, key, tables, f"{number}")
        for number, (job, key) in enumerate(zip(window, chosen, strict=True))
    ]
    span_s = window[-1].submitted_at - window[0].submitted_at
    work_gpu_s = sum(job.duration_s * job.gpus for job in jobs)
    scale = work_gpu_s / (mix.load * mix.gpus) / max(1.0, span_s)
    moved = [
        replace(job, submitted_at=scale * (job.submitted_at - window[0].submitted_at))
        for job in jobs
    ]
    return Trace(f"{trace.name}[{len(window)} jobs, load {mix.load:g}, seed {seed}]", tuple(moved))


def _as_table_job(job: TraceJob, key: tuple[str, int], tables: Tables, name: str) -> TraceJob:
    table = tables[key]
    gpus = max(level for level in table.levels if level <= max(job.gpus, table.levels[0]))
    run_s = min(LONGEST_S, max(SHORTEST_S, job.duration_s))
    return replace(
        job,
        id=f"real-{name}",
        duration_s=run_s,
        gpus=gpus,
        model=key[0],
        batch_size=key[1],
        iterations=run_s * table.speed(gpus),
        table=table,
    )
