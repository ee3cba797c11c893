"""Crowds of jobs as a service would see them, for what a decision about many jobs needs.

Nodes have 8 GPUs. One job in ten of a *tied* crowd may use only a fifth of the nodes.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from laxity_profiler.estimate import Workload
from laxity_scheduler.model.cluster import ClusterState, Node, NodeSet
from laxity_scheduler.model.job import Job
from laxity_scheduler.simulated.ground_truth import GroundTruth

WIDTHS: Final = (1, 2, 4, 8)
EPOCHS_S: Final = {width: 600.0 / width**0.9 for width in WIDTHS}
STARTED_S: Final = 100.0  # a start takes at most 96 s (`costs`, live)
TIED: Final = 0.1


def underway(state: ClusterState, draw: np.random.Generator) -> ClusterState:
    """A while later all that were started train, each somewhere in its epoch."""
    now = state.now + STARTED_S
    parts = draw.random(len(state.jobs)).tolist()
    rows = [
        replace(job, formed=job.workers, epoch_started_at=now - part * EPOCHS_S[job.workers])
        if job.workers and not job.formed
        else job
        for job, part in zip(state.jobs, parts, strict=True)
    ]
    return replace(state, now=now, jobs=tuple(rows))


def crowd(
    *, jobs: int, nodes: int, seed: int, tied: float = 0.0
) -> tuple[list[GroundTruth], ClusterState]:
    """A snapshot with so many queued jobs of 40 models, on nodes of 8 GPUs; half have deadlines.

    A share `tied` of the jobs may use the first fifth of the nodes only.
    """
    draw = np.random.default_rng(seed)
    kinds = [
        GroundTruth(
            id=f"model-{number}",
            number=number,
            submitted_at=0.0,
            epochs=20,
            widths=WIDTHS,
            epoch_s=EPOCHS_S,
            workload=Workload(f"model-{number}", 20),
        )
        for number in range(40)
    ]
    due = draw.uniform(2_000.0, 40_000.0, size=jobs)
    hard = draw.random(jobs) < 0.5
    rows = tuple(
        [
            Job(
                id=f"default/job-{number:06d}",
                workload=kinds[number % 40].workload,
                submitted_at=0.0,
                deadline_at=float(due[number]) if hard[number] else float("inf"),
                service_class="hard" if hard[number] else "best_effort",
                widths=WIDTHS,
            )
            for number in range(jobs)
        ]
    )
    machines = tuple([Node(f"node-{number:05d}", 8, 8) for number in range(nodes)])
    if not tied:
        return kinds, ClusterState(now=0.0, nodes=machines, jobs=rows)
    some = frozenset(node.id for node in machines[: max(1, nodes // 5)])
    hit = draw.random(jobs) < tied
    rows = tuple(
        [
            replace(job, eligible="zone=a") if is_tied else job
            for job, is_tied in zip(rows, hit, strict=True)
        ]
    )
    sets = {"zone=a": NodeSet(some, "not in zone a")}
    return kinds, ClusterState(now=0.0, nodes=machines, jobs=rows, sets=sets)
