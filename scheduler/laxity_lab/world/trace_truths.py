"""What really happens to a simulated job.

A trace's job becomes a number of equal epochs (600 s each at the width that its user asked for,
at least 1, at most 1,000) and the seconds of one epoch on each width: from a measured throughput
table (elastic), or from the recorded duration (rigid). Policies never see this: they ask a
NoisyPredictor, whose error is drawn per job from a seed.
"""

import math
import zlib
from collections.abc import Iterable
from typing import Final

import numpy as np

from laxity_lab.traces.traces import Trace
from laxity_profiler.estimate import Floats, Workload
from laxity_scheduler.allocation.order import Shape
from laxity_scheduler.simulated.ground_truth import GroundTruth

EPOCH_S: Final = 600.0
MOST_EPOCHS: Final = 1_000


def rigid_shape(gpus: int, gpus_per_node: int) -> Shape:
    """One worker up to a node, whole nodes above: (workers, GPUs per worker)."""
    if gpus <= gpus_per_node:
        return (1, gpus)
    return (math.ceil(gpus / gpus_per_node), gpus_per_node)


def epochs_of(duration_s: float, epoch_s: float = EPOCH_S) -> int:
    """round(duration / epoch), at least 1, at most 1,000."""
    return min(MOST_EPOCHS, max(1, round(duration_s / epoch_s)))


def ground_truths(
    trace: Trace, *, elastic: bool, gpus_per_node: int, pooled: bool, epoch_s: float = EPOCH_S
) -> list[GroundTruth]:
    """All jobs of a trace; `elastic` widens those that have a throughput table."""
    truths = []
    for number, (job, name) in enumerate(zip(trace.jobs, names_of(trace), strict=True)):
        epochs = epochs_of(job.duration_s, epoch_s)
        if elastic and job.table is not None:
            widths, per_worker = job.table.levels, 1
            took = {w: job.iterations / epochs / job.table.speed(w) for w in widths}
        else:
            workers, per_worker = (1, job.gpus) if pooled else rigid_shape(job.gpus, gpus_per_node)
            widths, took = (workers,), {workers: job.duration_s / epochs}
        truths.append(
            GroundTruth(
                id=name,
                number=number,
                submitted_at=job.submitted_at,
                epochs=epochs,
                widths=widths,
                epoch_s=took,
                gpus_per_worker=per_worker,
                deadline_at=job.deadline_at,
                service_class=job.service_class,
                ideal_s=job.duration_s,
                asked_gpus=job.gpus,
                # each trace job is a history of its own: its key is its name
                workload=Workload(model=name, epochs=epochs, batch_size=job.batch_size),
                group=job.group,
                step=job.step,
                after=job.after,
            )
        )
    return truths


def names_of(trace: Trace) -> list[str]:
    """Namespace and id of each job; one that was there before gets a number."""
    counts: dict[str, int] = {}
    names = []
    for job in trace.jobs:
        name = f"{job.namespace or 'default'}/{job.id}"
        again = counts[name] = counts.get(name, 0) + 1
        names.append(name if again == 1 else f"{name}.{again}")
    return names


def error_factors(job_ids: Iterable[str], *, error: float, seed: int) -> list[float]:
    """Believed over true duration of each job: exp(sigma z), `sigma_of` the mean error.

    z is drawn from the standard normal distribution by seed and the job's id.
    """
    sigma = sigma_of(error)
    if sigma == 0.0:
        return [1.0 for _ in job_ids]
    seeds = ([seed, zlib.crc32(job_id.encode())] for job_id in job_ids)
    draws = (float(np.random.default_rng(drawn_by).standard_normal()) for drawn_by in seeds)
    return [math.exp(sigma * draw) for draw in draws]


def sigma_of(error: float) -> float:
    """The spread of log-normal factors whose mean absolute error is about `error` (0.2: 20 %)."""
    return error * math.sqrt(math.pi / 2.0)


def belief_errors(factors: Floats, epochs: Floats, percent: int) -> Floats:
    """How far the rest is believed from the truth when so many epochs in a hundred are done.

    Both of shape (n,): errors drawn at the start, and all epochs of each job.
    """
    return np.asarray(np.abs(factors ** (1.0 / (1.0 + np.floor(epochs * percent / 100.0))) - 1.0))
