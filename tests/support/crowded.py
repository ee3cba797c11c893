"""Random states in which promised jobs share too few GPUs, so that they widen at each other's cost."""

from random import Random

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from tests.support.builders import cluster, promised

NOW = 10_000.0
LEVELS = ((1, 2), (1, 2, 4), (1, 2, 4, 8))


def crowded(seed: int) -> ClusterState:
    """One pool of 4 to 16 GPUs; jobs run in the middle of an epoch or wait; one epoch is 600 s alone."""
    draw = Random(seed)
    gpus = draw.choice((4, 8, 16))
    free, jobs = gpus, []
    for number in range(draw.randint(2, 8)):
        job = _job(draw, number, free)
        free -= job.workers
        jobs.append(job)
    return cluster(gpus=gpus, jobs=jobs, now=NOW)


def _job(draw: Random, number: int, free: int) -> Job:
    levels = draw.choice(LEVELS)
    may = [level for level in levels if level <= free]
    width = draw.choice(may) if may and draw.random() < 0.8 else 0
    epochs = draw.randint(2, 30)
    left_s = 600.0 * epochs / draw.choice(levels) * draw.uniform(0.95, 1.6) + 120.0
    begun_at = NOW - draw.uniform(0.0, 590.0) / max(1, width)
    return promised(
        f"job-{number}",
        NOW + left_s,
        epochs=epochs,
        workers=levels,
        running=width,
        epoch_started_at=begun_at if width else None,
        resumed_at=NOW - 6_000.0 if width else None,
        submitted_at=NOW - 9_000.0,
    )
