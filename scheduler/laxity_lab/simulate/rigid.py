"""Rigid jobs under an ordered policy, event by event: queue and ledger are kept between events.

The literal cycle (a fresh snapshot and ledger at each event) gives the same schedule, which tests
hold column by column; here nothing is built that the decision does not need.
"""

import gc
import math
import time
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from operator import mul

import numpy as np

from laxity_lab.simulate.progress import Ended, nobody
from laxity_lab.traces.traces import Trace, TraceJob
from laxity_lab.world.outcome import Run, columns_with_defaults
from laxity_lab.world.trace_truths import rigid_shape
from laxity_profiler.estimate import Floats
from laxity_scheduler.allocation.order import GpuSource, Order, Packing, Pool, Queue, Shape, pack
from laxity_scheduler.capacity.ledger import Ledger


def run_order(
    trace: Trace,
    order: Order,
    *,
    nodes: int,
    gpus_per_node: int,
    factors: Sequence[float],
    pooled: bool = False,
    ended: Ended = nobody,
) -> Run:
    """Simulate; `factors` are believed over true run times, (n,).

    `pooled` ignores nodes. A job larger than the cluster is refused at submission.
    """
    jobs = trace.jobs
    gc.collect()
    gc.disable()  # what lives here lives to the end
    began = time.process_time()
    shapes = [(1, job.gpus) if pooled else rigid_shape(job.gpus, gpus_per_node) for job in jobs]
    keys = [
        order.sort_key(
            job.service_class,
            order.key(
                job.submitted_at, job.deadline_at, partial(mul, job.duration_s, factor), job.gpus
            ),
        )
        for job, factor in zip(jobs, factors, strict=True)
    ]
    room = (
        Pool(nodes * gpus_per_node)
        if pooled
        else Ledger([f"node-{number}" for number in range(nodes)], [gpus_per_node] * nodes)
    )
    starts = _starts(jobs, shapes, keys, order.packing, room, ended=ended)
    cpu_s = time.process_time() - began
    gc.enable()
    columns, refused = _columns(jobs, shapes, starts)
    return Run(
        policy=order.name,
        trace=trace.name,
        gpus=nodes * gpus_per_node,
        ids=[job.id for job in jobs],
        columns=columns,
        refused=refused,
        cpu_s=cpu_s,
        events=2 * len(jobs) - len(refused),
    )


def _starts(
    jobs: Sequence[TraceJob],
    shapes: Sequence[Shape],
    keys: Sequence[float],
    packing: Packing,
    room: GpuSource,
    *,
    ended: Ended,
) -> list[float]:
    """When each job starts; infinity for one that can never fit."""
    forever, capacity, give = math.inf, room.total_free, room.give
    arrivals = [job.submitted_at for job in jobs] + [forever]
    runs_s = [job.duration_s for job in jobs]
    starts = [forever] * len(jobs)
    queue = Queue()
    finishes: list[tuple[float, int, tuple[str, ...]]] = []
    arrived, over = 0, 0
    while True:
        next_finish = finishes[0][0] if finishes else forever
        now = min(arrivals[arrived], next_finish)
        if now == forever:
            return starts
        if now == next_finish:
            while finishes and finishes[0][0] == now:
                _, number, nodes = heappop(finishes)
                give(nodes, shapes[number][1])
                over += 1
            queue.note_freed_gpus()
            ended(over)
        while arrivals[arrived] == now:
            workers, per_worker = shapes[arrived]
            if workers * per_worker <= capacity:
                queue.add(shapes[arrived], keys[arrived], arrived)
            arrived += 1
        if queue.stirred or packing == "strict":
            for number, nodes in pack(queue, room, packing):
                starts[number] = now
                heappush(finishes, (now + runs_s[number], number, nodes))


def _columns(
    jobs: Sequence[TraceJob], shapes: Sequence[Shape], starts: Sequence[float]
) -> tuple[dict[str, Floats], dict[int, str]]:
    held = np.array([workers * per_worker for workers, per_worker in shapes], dtype=np.float64)
    ideal = np.array([job.duration_s for job in jobs], dtype=np.float64)
    start = np.array(starts, dtype=np.float64)
    ran = np.where(np.isfinite(start), ideal, 0.0)
    columns = columns_with_defaults(
        len(jobs),
        submitted_at=np.array([job.submitted_at for job in jobs], dtype=np.float64),
        gpus=held,
        deadline_at=np.array([job.deadline_at for job in jobs], dtype=np.float64),
        ideal_s=ideal,
        first_start_at=start,
        finished_at=start + ideal,
        running_s=ran,
        gpu_s=ran * held,
    )
    return columns, {int(row): "does_not_fit_cluster" for row in np.flatnonzero(np.isinf(start))}
