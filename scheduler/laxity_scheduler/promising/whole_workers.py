"""Whole workers: a worker of 8 GPUs needs 8 on one node, however many are free in all.

Beside the sum of GPUs a profile has a part for each kind of worker with several GPUs of jobs that wait
for a verdict. Of a worker of g GPUs that may use the nodes N it counts, at each instant t (our own),

    g * sum over n in N of floor(free_n(t) / g)

where free_n(t) is what node n has left when all have gone that can be made to go by then: who can be
stopped leaves at the end of its epoch, who cannot at its end. Newcomers of that kind weigh on it.
Smaller ones do not: they may fit between. So it is a bound, and the sum still counts. Who is promised
is planned by the sum: for such a job others are stopped when it is due (`qos.starting`).

GPUs that groups keep for steps to come weigh as claims do: on the cluster, on the regions that the jobs
to come cannot leave, and where a worker needs several GPUs of one node, on its kind of whole workers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.model.cluster import PROMISABLE_POOLS, ClusterState, Reserved
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.promising.regions import Region
from laxity_scheduler.promising.reserve import Profile, keep_gpus


class WholeWorkers(NamedTuple):
    """A kind of worker: its GPUs, and the set of nodes that it may use ("": all)."""

    gpus: int
    eligible: str

    def asks(self, job: Job) -> bool:
        """Whether it is a job of this kind that waits and holds no promise."""
        is_new = not (job.workers or isinstance(job.verdict, Promise))
        return is_new and (job.gpus_per_worker, job.eligible) == self


def kinds_of(jobs: Iterable[Job | Reserved]) -> tuple[WholeWorkers, ...]:
    """Those of these jobs and coming steps, small workers first."""
    kinds = {(job.gpus_per_worker, job.eligible) for job in jobs}
    return tuple([WholeWorkers(*kind) for kind in sorted(kinds)])


@dataclass(frozen=True, slots=True)
class Frees:
    """When GPUs of nodes are free again: n times (s from now), on which node, how many."""

    until_s: Floats
    node: Ints
    gpus: Ints
    free: Ints  # (nodes,): now
    names: Sequence[str]


def read_frees(
    state: ClusterState, runs: Sequence[int], until_s: Floats, terminated_s: float
) -> Frees:
    """Of training nodes, there or coming. `until_s` (jobs,) says until when each that runs holds its GPUs.

    Busy GPUs that no worker explains are of pods that terminate, where some do; else of others.
    """
    nodes = [node for node in state.nodes if node.pool in PROMISABLE_POOLS]
    place = {node.id: number for number, node in enumerate(nodes)}
    rows: list[tuple[float, int, int]] = []
    busy = np.array([node.gpus - node.free_gpus - node.away_gpus for node in nodes], dtype=np.int64)
    for row in runs:
        job = state.jobs[row]
        for name in job.nodes:
            if name in place:
                rows.append((float(until_s[row]), place[name], job.gpus_per_worker))
                busy[place[name]] -= job.gpus_per_worker
    rows += [
        (terminated_s, number, int(gpus))
        for number, gpus in enumerate(busy.tolist())
        if gpus > 0 and terminated_s > 0.0
    ]
    free = np.array([max(0, node.free_gpus) + node.away_gpus for node in nodes], dtype=np.int64)
    for number, node in enumerate(nodes):
        if node.coming is not None:
            rows.append((node.coming.within_s, number, int(free[number])))
            free[number] = 0
    rows = sorted(row for row in rows if row[0] < FOREVER)
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3)
    names = [node.id for node in nodes]
    return Frees(
        columns[:, 0], columns[:, 1].astype(np.int64), columns[:, 2].astype(np.int64), free, names
    )


def whole_free(
    frees: Frees, kind: WholeWorkers, may: frozenset[str] | None
) -> tuple[float, Floats]:
    """GPUs of whole workers that are free now, and how many more (n,) at each of the times."""
    free = frees.free.copy()
    usable: Bools = np.array([may is None or name in may for name in frees.names], dtype=np.bool_)
    now = float((free[usable] // kind.gpus).sum() * kind.gpus)
    more = np.zeros(len(frees.until_s))
    for row, (number, gpus) in enumerate(
        zip(frees.node.tolist(), frees.gpus.tolist(), strict=True)
    ):
        if usable[number]:
            before = free[number] // kind.gpus
            free[number] += gpus
            more[row] = (free[number] // kind.gpus - before) * kind.gpus
    return now, more


def weigh_whole(kinds: Sequence[WholeWorkers], jobs: Sequence[Job]) -> Bools:
    """Which kind each job is of, if it asks, (n, kinds)."""
    return np.array([[kind.asks(job) for kind in kinds] for job in jobs], dtype=np.bool_).reshape(
        len(jobs), len(kinds)
    )


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
