"""Whether a plan fits at a glance: a plan of ten thousand starts is checked all at once.

Starts only take GPUs, so in whichever order they are counted they fit if each node holds all that is
named on it. What is not plain (widths that change, stops, holds, anything odd) is checked decision
by decision, by the code that also says what is wrong (`plan`).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter, le
from typing import Final

from laxity_scheduler.decision import Admit, Decision, Forecasted, Promised, Refuse, Wait
from laxity_scheduler.ledger import USABLE
from laxity_scheduler.state import ClusterState, Job
from laxity_scheduler.verdict import Refusal

PLAIN: Final = frozenset({Promised, Forecasted, Wait, Refuse, Admit})
NAME, WORKERS, SIZE = map(attrgetter, ("job", "workers", "gpus_per_worker"))


def plainly_fits(state: ClusterState, decisions: Sequence[Decision]) -> bool:
    """Whether there are verdicts, waits and starts alone, and all fit. False: look closer."""
    kinds = list(map(type, decisions))
    if state.holds or not PLAIN.issuperset(kinds):
        return False
    try:
        jobs = list(map(state.by_id.__getitem__, map(NAME, decisions)))
    except KeyError:
        return False
    refused = [job for job, kind in zip(jobs, kinds, strict=True) if kind is Refuse]
    starts = [one for one in decisions if isinstance(one, Admit)]
    starting = [job for job, kind in zip(jobs, kinds, strict=True) if kind is Admit]
    if any(map(WORKERS, refused)):
        return False
    started = set(map(NAME, starts))
    if len(started) < len(starts) or any(job.id in started for job in refused):
        return False
    return _may_start(state, starts, starting) and _holds(state, starts, starting)


def _may_start(state: ClusterState, starts: Sequence[Admit], jobs: Sequence[Job]) -> bool:
    """Whether these jobs, one per start, wait and may have these widths and nodes."""
    for start, job in zip(starts, jobs, strict=True):  # each row once: that spares the caches
        if (
            job.workers
            or start.workers not in job.widths
            or not 0 < start.workers == len(start.nodes)
            or job.terminating_workers
            or job.pinned
            or isinstance(job.verdict, Refusal)
        ):
            return False
        if job.eligible:
            may = state.eligible(job)
            if may is not None and not may.issuperset(start.nodes):
                return False
    return True


def _holds(state: ClusterState, starts: Sequence[Admit], jobs: Sequence[Job]) -> bool:
    """Whether the nodes hold all workers that are named on them."""
    sizes = list(map(SIZE, jobs))
    taken: Counter[str] = Counter()
    for size in set(sizes):
        named = [start.nodes for start, mine in zip(starts, sizes, strict=True) if mine == size]
        workers = Counter(chain.from_iterable(named))
        if size == 1 and not taken:
            taken = workers
            continue
        for node, many in workers.items():
            taken[node] += many * size
    free = {node.id: node.free_gpus for node in state.nodes if node.pool in USABLE}
    if not free.keys() >= taken.keys():
        return False
    return all(map(le, taken.values(), map(free.__getitem__, taken)))
