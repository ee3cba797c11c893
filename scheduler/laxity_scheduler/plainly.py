"""Whether a plan fits at a glance: a plan of ten thousand starts is checked all at once.

Starts only take GPUs, so in whichever order they are counted they fit if each node holds all that is
named on it. What is not plain (widths that change, stops, holds, anything odd) is checked decision
by decision, by the code that also says what is wrong (`plan`).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

from laxity_scheduler.decision import Admit, Decision, Forecasted, Promised, Refuse, Wait
from laxity_scheduler.ledger import USABLE
from laxity_scheduler.state import ClusterState, Job

TOLD: Final = (Promised, Forecasted, Wait)
Named = dict[int, list[tuple[str, ...]]]  # nodes of starts, by GPUs per worker


def plainly_fits(state: ClusterState, decisions: Sequence[Decision]) -> bool:
    """Whether there are verdicts, waits and starts alone, and all fit. False: look closer."""
    if state.holds:
        return False
    by_id, named = state.by_id, Named()
    refused: set[str] = set()
    started: list[str] = []
    for decision in decisions:
        if isinstance(decision, Admit):
            job = by_id.get(decision.job)
            if job is None or decision.job in refused or not _may_start(job, decision):
                return False
            started.append(decision.job)
            named.setdefault(job.gpus_per_worker, []).append(decision.nodes)
        elif isinstance(decision, Refuse):
            job = by_id.get(decision.job)
            if job is None or job.workers:
                return False
            refused.add(decision.job)
        elif not isinstance(decision, TOLD) or decision.job not in by_id:
            return False
    return len(set(started)) == len(started) and _holds(state, named)


def _may_start(job: Job, decision: Admit) -> bool:
    return (
        decision.workers in job.widths
        and 0 < decision.workers == len(decision.nodes)
        and not (job.workers or job.terminating_workers or job.pinned or job.refused)
    )


def _holds(state: ClusterState, named: Named) -> bool:
    """Whether the nodes hold all workers that are named on them."""
    if not named:
        return True
    taken: Counter[str] = Counter()
    for gpus_per_worker, nodes in named.items():
        workers = Counter(chain.from_iterable(nodes))
        for node, many in workers.items():
            taken[node] += many * gpus_per_worker
    free = {node.id: node.free_gpus for node in state.nodes if node.pool in USABLE}
    return all(gpus <= free.get(node, -1) for node, gpus in taken.items())
