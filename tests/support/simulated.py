"""Builders with sane defaults for simulated jobs, traces and worlds."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from laxity_lab.simulate.run import nodes_of
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import Trace, TraceJob
from laxity_lab.world.trace_truths import ground_truths
from laxity_lab.world.world import SimWorld
from laxity_scheduler.simulated.change_costs import CostName, costs
from laxity_scheduler.simulated.ground_truth import GroundTruth

SAMPLES = Path(__file__).parents[2] / "scheduler/laxity_lab/traces/samples"
TRACES = Path(os.environ["LAXITY_TRACES"]) if os.environ.get("LAXITY_TRACES") else None
LINEAR = ThroughputTable((1, 2, 4), (1.0, 2.0, 4.0))


def job(
    name: str = "a",
    *,
    at: float = 0.0,
    runs_s: float = 600.0,
    gpus: int = 1,
    due_at: float = math.inf,
    table: ThroughputTable | None = None,
) -> TraceJob:
    return TraceJob(
        id=name,
        submitted_at=at,
        duration_s=runs_s,
        gpus=gpus,
        deadline_at=due_at,
        service_class="hard" if due_at < math.inf else "best_effort",
        iterations=runs_s * (table.speed(gpus) if table else 1.0),
        table=table,
    )


def trace(*jobs: TraceJob) -> Trace:
    return Trace("made", tuple(sorted(jobs, key=lambda one: one.submitted_at)))


def random_trace(seed: int, *, jobs: int = 60, levels: Sequence[int] = (1, 2, 4, 8, 16)) -> Trace:
    draw = np.random.default_rng(seed)
    instants = np.sort(draw.integers(0, 4_000, size=jobs)).astype(float)
    return trace(
        *[
            job(
                f"job-{row}",
                at=float(instants[row]),
                runs_s=float(draw.integers(1, 2_000)),
                gpus=int(draw.choice(np.asarray(levels))),
                due_at=float(instants[row] + draw.integers(100, 6_000)),
            )
            for row in range(jobs)
        ]
    )


def world(
    jobs: Trace,
    *,
    cost: CostName = "free",
    nodes: int = 2,
    gpus_per_node: int = 4,
    restart_s: float = 0.0,
) -> tuple[SimWorld, list[GroundTruth]]:
    made = ground_truths(jobs, elastic=True, gpus_per_node=gpus_per_node, pooled=False)
    model = costs(cost, cluster_gpus=nodes * gpus_per_node, restart_s=restart_s)
    return SimWorld(made, nodes_of(nodes, gpus_per_node, pooled=False), model), made
