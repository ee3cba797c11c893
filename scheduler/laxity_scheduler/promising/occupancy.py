"""On which regions the workers of running jobs sit, for ten thousand of them at once.

A row says on which nodes its workers are. How many of these lie in each region changes only with the
row or the regions, so it is kept between decisions and read again for other rows alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, carry_over_rows
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job

Parts = tuple[frozenset[str], ...]  # the nodes of each region


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
