"""Whether a plan fits at a glance: a plan of ten thousand starts is checked all at once.

Starts only take GPUs, so in whichever order they are counted they fit if each node holds all that is
named on it. What is not plain (widths that change, stops, holds, anything odd) is checked decision
by decision, by the code that also says what is wrong (`plan`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from laxity_scheduler.decision import Admit, Decision, Forecasted, Promised, Refuse, Wait
from laxity_scheduler.ledger import USABLE
from laxity_scheduler.state import ClusterState, Job
from laxity_scheduler.verdict import Refusal

TOLD: Final = (Promised, Forecasted, Wait)
PLAIN: Final = frozenset({*TOLD, Refuse, Admit})


def plainly_fits(state: ClusterState, decisions: Sequence[Decision]) -> bool:
    """Whether there are verdicts, waits and starts alone, and all fit. False: look closer."""
    if state.holds:
        return False
    kinds = set(map(type, decisions))
    if not kinds <= PLAIN:
        return False
    by_id = state.by_id
    starts = [decision for decision in decisions if isinstance(decision, Admit)]
    refused = [decision.job for decision in decisions if isinstance(decision, Refuse)]
    told = [decision.job for decision in decisions if isinstance(decision, TOLD)]
    started = {decision.job for decision in starts}
    if len(started) < len(starts) or not started.isdisjoint(refused):
        return False
    if not by_id.keys() >= started.union(told, refused):
        return False
    if any(by_id[name].workers for name in refused):
        return False
    return _may_start(state, starts) and _holds(state, by_id, starts)


def _may_start(state: ClusterState, starts: Sequence[Admit]) -> bool:
    by_id = state.by_id
    for start in starts:
        job = by_id[start.job]
        if (
            job.workers
            or start.workers not in job.widths
            or not 0 < start.workers == len(start.nodes)
            or job.terminating_workers
            or job.pinned
            or isinstance(job.verdict, Refusal)
        ):
            return False
        may = state.eligible(job)
        if may is not None and not may.issuperset(start.nodes):
            return False
    return True


def _holds(state: ClusterState, by_id: Mapping[str, Job], starts: Sequence[Admit]) -> bool:
    """Whether the nodes hold all workers that are named on them."""
    if not starts:
        return True
    sizes = [by_id[start.job].gpus_per_worker for start in starts]
    taken: Counter[str] = Counter()
    for size in set(sizes):
        named = [start.nodes for start, mine in zip(starts, sizes, strict=True) if mine == size]
        for node, workers in Counter(chain.from_iterable(named)).items():
            taken[node] += workers * size
    free = {node.id: node.free_gpus for node in state.nodes if node.pool in USABLE}
    return all(gpus <= free.get(node, -1) for node, gpus in taken.items())
