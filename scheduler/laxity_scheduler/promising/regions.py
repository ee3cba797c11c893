"""Jobs that cannot have all GPUs: on which parts of the cluster these are counted, and what weighs there.

By Hall's theorem, jobs that need d_i GPUs on nodes of their sets E_i fit if and only if

    for every union S of the sets:    sum of d_i over all E_i within S  <=  GPUs of S

where unions of overlapping sets are enough: nested and disjoint ones need none but themselves. So a
claim is counted on the whole cluster and on each region S that it cannot leave. Workers that run do
not move: they weigh where they are. Where there were too many unions, a set weighs on all regions
that it touches, which is careful and still sound. GPUs are counted, not how they lie on nodes.

A quota is a region as well: not of nodes but of jobs. The jobs that name it weigh on it wherever they
run, nobody else does, and it has as many GPUs as the quota allows. What jobs need of quotas and of
nodes are conditions on their own: no union of both is needed.

Where every job may use every node there are no regions.

On which regions the workers of running jobs sit (`Occupancy`) changes only with a row or the regions, so
it is kept between decisions and read again for other rows alone.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints, carry_over_rows
from laxity_scheduler.frame.remaining import stopping
from laxity_scheduler.model.cluster import NO_NODES, ClusterState, NodeSet, Reserved
from laxity_scheduler.model.job import Job
from laxity_scheduler.promising.claimants import BOUNDED, FREE

MOST_REGIONS: Final = 32
MOST_WORKERS: Final = 1 << 20
Parts = tuple[frozenset[str], ...]  # the nodes of each region


@dataclass(frozen=True)
class Region:
    """Nodes on which GPUs are counted, and the names of the sets whose jobs weigh on it whole.

    Waiting jobs for which others were stopped here will start here: they weigh by what they await.
    The region of a quota has no nodes.
    """

    nodes: frozenset[str]
    inside: frozenset[str]
    awaited: Mapping[str, int] = field(default_factory=dict, compare=False)  # GPUs for whom
    quota: str = ""

    def whole(self, job: Job | Reserved) -> bool:
        """Whether all of its workers weigh on this region, wherever they are."""
        return job.quota == self.quota if self.quota else job.eligible in self.inside

    def whole_of(self, jobs: Iterable[Job]) -> Bools:
        """Which of the jobs weigh on this region with all of their workers, (n,)."""
        if self.quota:
            return np.array([job.quota == self.quota for job in jobs], dtype=np.bool_)
        inside = self.inside
        return np.array([job.eligible in inside for job in jobs], dtype=np.bool_)

    def workers(self, job: Job, workers: int) -> int:
        """How many of its first `workers` workers weigh on this region, as long as it is planned."""
        if self.whole(job):
            return workers
        if not job.workers:
            return min(workers, self.awaited.get(job.id, 0) // job.gpus_per_worker)
        return 0 if stopping(job) else self._sits(job, workers)

    def sits(self, job: Job) -> int:
        """How many of its workers weigh on it now."""
        return job.workers if self.whole(job) else self._sits(job, job.workers)

    def touches(self, job: Job) -> bool:
        """Whether any of its workers may weigh on it, though not all must."""
        if not job.workers:
            return job.id in self.awaited
        return not self.quota and (not job.nodes or not self.nodes.isdisjoint(job.nodes))

    def _sits(self, job: Job, workers: int) -> int:
        if self.quota:
            return 0
        if job.workers and not job.nodes:
            return min(workers, job.workers)  # nobody knows where they are
        return self.holds(job.nodes[:workers])

    def holds(self, nodes: Sequence[str]) -> int:
        """How many of these workers' nodes are its own."""
        return sum(node in self.nodes for node in nodes)


def regions_of(state: ClusterState) -> tuple[Region, ...]:
    """The regions of a snapshot, small ones first, then quotas; none where all may have all GPUs."""
    return _of_nodes(state) + tuple(
        [Region(NO_NODES, NO_NODES, quota=name) for name in sorted(state.quotas or ())]
    )


def _of_nodes(state: ClusterState) -> tuple[Region, ...]:
    if not state.sets:
        return ()
    usable = state.node_pools.open | state.node_pools.names_by_pool["coming"]
    regions: tuple[Region, ...]
    *nodes, regions = state.memory.get("regions", (None, None, ()))
    if nodes != [usable, state.sets]:
        regions = _cut(usable, state.sets)
        state.memory["regions"] = usable, state.sets, regions
    awaited = _count_awaited_gpus(state)
    if not awaited:
        return regions
    return tuple([replace(region, awaited=_within(awaited, region.nodes)) for region in regions])


def _cut(usable: frozenset[str], sets: Mapping[str, NodeSet]) -> tuple[Region, ...]:
    """The regions of these nodes; the same as long as nobody labels or adds a node."""
    mine = {name: node_set.nodes & usable for name, node_set in sets.items()}
    closed, exact = unions({*mine.values()} - {usable})
    return tuple(
        Region(
            nodes,
            frozenset(
                name for name, own in mine.items() if own <= nodes or (own & nodes and not exact)
            ),
        )
        for nodes in sorted(closed - {usable}, key=lambda nodes: (len(nodes), sorted(nodes)))
    )


def _count_awaited_gpus(state: ClusterState) -> Counter[tuple[str, str]]:
    """GPUs by (job, node) that are held or being freed for somebody, of whole workers.

    What such a worker needs beside them was free there already.
    """
    gpus: Counter[tuple[str, str]] = Counter()
    for hold in state.holds:
        if hold.until_at > state.now:
            gpus[hold.job, hold.node] += hold.gpus
    for job in [job for job in state.running if job.stop_for]:
        if stopping(job):
            for node in job.nodes:
                gpus[job.stop_for, node] += job.gpus_per_worker
    for (name, node), count in gpus.items():
        size = state.by_id[name].gpus_per_worker if name in state.by_id else 1
        gpus[name, node] = -(-count // size) * size
    return gpus


def _within(awaited: Mapping[tuple[str, str], int], nodes: frozenset[str]) -> Counter[str]:
    gpus_by_job: Counter[str] = Counter()
    for (job, node), gpus in awaited.items():
        gpus_by_job[job] += gpus * (node in nodes)
    return gpus_by_job


def unions(sets: Iterable[frozenset[str]]) -> tuple[frozenset[frozenset[str]], bool]:
    """These sets with all unions of overlapping ones; the sets alone, and False, if too many."""
    first = frozenset(sets)
    closed, new = set(first), list(first)
    while new:
        nodes = new.pop()
        for other in tuple(closed):
            both = nodes | other
            if nodes & other and both not in closed:
                closed.add(both)
                new.append(both)
        if len(closed) > max(MOST_REGIONS, len(first)):
            return first, False
    return frozenset(closed), True


def weigh(
    regions: Sequence[Region], jobs: Sequence[Job], widths: Floats, sizes: Floats
) -> tuple[Floats, Ints]:
    """GPUs that n jobs need of the cluster and of each region on K widths, (n, 1 + R, K).

    And which of these parts bound them, (n, 1 + R). Who runs on a region could perhaps go elsewhere,
    but only by a stop and a start. For who waits and may sit there or elsewhere it is the part of both;
    what it needs of a region is then what it awaits there, and its other workers look for seats.
    """
    gpus = widths * sizes[:, None]
    needs = np.zeros((len(jobs), 1 + len(regions), widths.shape[1]))
    bound = np.full(needs.shape[:2], BOUNDED)
    needs[:, 0] = gpus
    known: dict[tuple[int, str], int] = {}
    for part, region in enumerate(regions, 1):
        whole = region.whole_of(jobs)
        needs[whole, part], bound[:, part] = gpus[whole], np.where(whole, BOUNDED, FREE)
        for row in np.flatnonzero(~whole).tolist():
            job = jobs[row]
            if region.touches(job):
                needs[row, part] = [
                    region.workers(job, int(min(width, MOST_WORKERS))) * job.gpus_per_worker
                    for width in widths[row].tolist()
                ]
            if job.workers:
                bound[row, part] = BOUNDED if region.touches(job) else FREE
            else:
                key = part, job.eligible
                if key not in known:
                    known[key] = find_around(regions, region, job.eligible)
                bound[row, part] = known[key]
    return needs, bound


def find_around(regions: Sequence[Region], region: Region, eligible: str) -> int:
    """The part of a region and all that jobs of a set may use besides; FREE if they do not meet.

    The least region that they cannot leave is their set.
    """
    if region.quota:
        return FREE
    own = next((other.nodes for other in regions if eligible in other.inside), None)
    if own is None:
        return 0
    if not own & region.nodes:
        return FREE
    both = own | region.nodes
    return next((part for part, other in enumerate(regions, 1) if other.nodes == both), 0)


def count_fitting(regions: Sequence[Region], job: Job, free_gpus: Sequence[float]) -> int:
    """How many of its workers fit where so many GPUs of the cluster and of each region are free."""
    whole, *parts = [int(max(0.0, gpus)) // job.gpus_per_worker for gpus in free_gpus]
    fitting = whole
    for region, workers in zip(regions, parts, strict=True):
        if region.whole(job):
            fitting = min(fitting, workers)
        else:
            sitting = [region.workers(job, most) for most in range(job.workers + 1)]
            most = bisect_right(sitting, workers) - 1
            fitting = min(fitting, most) if most < job.workers else fitting
    return fitting


@dataclass(frozen=True, slots=True)
class OnRegion:
    """GPUs of a region: for claims, free now, and of pods that are gone in so many seconds.

    Of those for claims so many are free on nodes that are `coming`.
    """

    capacity: int
    free: int
    terminating: int
    terminated_s: float
    coming: int = 0


@dataclass(frozen=True, slots=True)
class Occupancy:
    """R regions: their nodes among those of the snapshot, and workers on them by row."""

    parts: Parts
    names: tuple[str, ...]
    number: Mapping[str, int]
    member: Bools  # (nodes + 1, R): the last is none of the snapshot's
    jobs: tuple[Job, ...]
    workers: Floats  # (n, R)

    def of(self, named: Sequence[tuple[str, ...]]) -> Floats:
        """How many of these nodes lie in each region, (len(named), R)."""
        flat = list(map(self.number.get, chain.from_iterable(named), repeat(len(self.names))))
        sums = np.zeros((len(flat) + 1, len(self.parts)))
        np.cumsum(self.member[np.array(flat, dtype=np.int64)], axis=0, out=sums[1:])
        ends = np.cumsum(list(map(len, named)), dtype=np.int64)
        counts: Floats = sums[ends] - sums[np.append(0, ends[:-1])]
        return counts


def read_occupancy(state: ClusterState, parts: Parts) -> Occupancy:
    """Of all rows."""
    names = tuple([node.id for node in state.nodes])
    last: Occupancy | None = state.memory.get("occupancy")
    if last is None or last.names != names or last.parts != parts:
        last = _empty(names, parts)
    if last.jobs is not state.jobs:
        arrays, changed = carry_over_rows(last.jobs, state.jobs, (last.workers,))
        workers = arrays[0] if last.jobs else np.zeros((len(state.jobs), len(parts)))
        if changed:
            workers[changed] = last.of([state.jobs[row].nodes for row in changed])
        last = Occupancy(last.parts, last.names, last.number, last.member, state.jobs, workers)
        state.memory["occupancy"] = last
    return last


def _empty(names: tuple[str, ...], parts: Parts) -> Occupancy:
    member = np.zeros((len(names) + 1, len(parts)), dtype=np.bool_)
    for column, nodes in enumerate(parts):
        member[:-1, column] = [name in nodes for name in names]
    number = dict(zip(names, range(len(names)), strict=True))
    return Occupancy(parts, names, number, member, (), np.zeros((0, len(parts))))
