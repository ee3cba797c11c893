"""Where workers go when some nodes are lent: what is lent takes those that are easily moved away.

Base workers (up to a job's least width) go to training nodes first, flexible ones to lent nodes
first. Where jobs wait that may not use lent nodes, all leave the training nodes to these. On lent nodes the two keep apart, so that inference finds nodes back on which nobody has to
be stopped (Aryl, 4.6).
"""

from collections.abc import Sequence
from dataclasses import replace

from laxity_scheduler.capacity.ledger import Among, Ledger
from laxity_scheduler.model.cluster import ClusterState, Node
from laxity_scheduler.model.job import Job


class PoolLedger:
    """Free GPUs of training nodes, of lent nodes with base workers, and of the other lent ones."""

    def __init__(self, state: ClusterState) -> None:
        based = {name for job in state.running for name in job.nodes[: job.widths[0]]}
        lent = [node for node in state.nodes if node.pool == "loaned"]
        self._training = _ledger_of(state, [n for n in state.nodes if n.pool == "training"])
        self._based = _ledger_of(state, [node for node in lent if node.id in based])
        self._unbased = _ledger_of(state, [node for node in lent if node.id not in based])
        self._base_order = (self._training, self._based, self._unbased)
        if _is_training_short(state, frozenset(node.id for node in lent)):
            self._base_order = (self._based, self._unbased, self._training)

    def open_holds(self, job: str) -> None:
        for ledger in (self._training, self._based, self._unbased):
            ledger.open_holds(job)

    def close_holds(self, job: str) -> None:
        for ledger in (self._training, self._based, self._unbased):
            ledger.close_holds(job)

    def place_for(self, job: Job, workers: int, among: Among = None) -> tuple[str, ...] | None:
        """Nodes, taken, for what the job needs more to have so many workers; None if no fit."""
        base = max(0, min(workers, job.widths[0]) - job.workers)
        nodes = _place_in_order(self._base_order, base, job.gpus_per_worker, among)
        if nodes is None:
            return None
        flexible = workers - job.workers - base
        first = (self._unbased, self._based, self._training)
        more = _place_in_order(first, flexible, job.gpus_per_worker, among)
        if more is None:
            for ledger in first:
                ledger.give([name for name in nodes if ledger.knows(name)], job.gpus_per_worker)
            return None
        return nodes + more


def _is_training_short(state: ClusterState, lent: frozenset[str]) -> bool:
    """Whether jobs wait that may use no lent node, for more than is free elsewhere."""
    restricted = {name for name, some in (state.sets or {}).items() if lent.isdisjoint(some.nodes)}
    if not lent or not restricted:
        return False
    free = sum(node.free_gpus for node in state.nodes if node.pool == "training")
    wanted = sum(
        job.widths[0] * job.gpus_per_worker for job in state.queued if job.eligible in restricted
    )
    return wanted > free


def _ledger_of(state: ClusterState, nodes: Sequence[Node]) -> Ledger:
    return Ledger.of(replace(state, nodes=tuple(nodes)))


def _place_in_order(
    ledgers: Sequence[Ledger], workers: int, gpus_per_worker: int, among: Among
) -> tuple[str, ...] | None:
    """As many as fit from the first ledger, the rest from the next ones."""
    if workers == 0:
        return ()
    counts = []
    left = workers
    for ledger in ledgers:
        counts.append(min(left, ledger.slots(gpus_per_worker, among)))
        left -= counts[-1]
    if left:
        return None
    nodes: tuple[str, ...] = ()
    for ledger, count in zip(ledgers, counts, strict=True):
        if count:
            nodes += ledger.place(count, gpus_per_worker, among) or ()
    return nodes
