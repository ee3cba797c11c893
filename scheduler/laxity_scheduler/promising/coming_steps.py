"""GPUs that groups keep for steps to come: where they weigh in a plan over time.

As claims do: on the cluster, on the regions that the jobs to come cannot leave, and where a worker
needs several GPUs of one node, on its kind of whole workers.
"""

from collections.abc import Iterable, Sequence

from laxity_scheduler.model.cluster import Reserved
from laxity_scheduler.model.job import Job
from laxity_scheduler.promising.regions import Region
from laxity_scheduler.promising.reserve import Profile, keep_gpus
from laxity_scheduler.promising.whole_workers import WholeWorkers


def reserve_for(step: str, row: Job, from_at: float, until_at: float, gpus: int) -> Reserved:
    """GPUs for jobs like this row."""
    return Reserved(step, from_at, until_at, gpus, row.eligible, row.quota, row.gpus_per_worker)


def parts_of(
    regions: Sequence[Region], kinds: Sequence[WholeWorkers], step: Job | Reserved
) -> list[int]:
    """The parts of a profile on which all workers of a coming step weigh."""
    mine = [part for part, region in enumerate(regions, 1) if region.whole(step)]
    kind = (step.gpus_per_worker, step.eligible)
    return [0, *mine, *(part for part, one in enumerate(kinds, 1 + len(regions)) if one == kind)]


def keep_steps(
    profile: Profile,
    steps: Iterable[Reserved],
    now: float,
    regions: Sequence[Region],
    kinds: Sequence[WholeWorkers],
    *,
    sign: int = 1,
) -> None:
    """Keep these GPUs; with -1 no longer."""
    for kept in steps:
        from_s, until_s = max(0.0, kept.from_at - now), kept.until_at - now
        gpus, parts = sign * float(kept.gpus), parts_of(regions, kinds, kept)
        keep_gpus(profile, from_s, until_s, gpus, parts)
