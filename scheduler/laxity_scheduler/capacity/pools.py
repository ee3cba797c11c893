"""Where workers go when some nodes are lent: what is lent takes those that are easily moved away.

Base workers (up to a job's least width) go to training nodes first, flexible ones to lent nodes
first. Where jobs wait that may not use lent nodes, all leave the training nodes to these. On lent
nodes the two keep apart, so that inference finds nodes back on which nobody has to be stopped
(Aryl, 4.6).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from laxity_scheduler.capacity.ledger import Among, Ledger
from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.job import Job, WorkerShape

Nodes = frozenset[str]


class WorkerOrder(NamedTuple):
    """Parts of the cluster, in the order in which they are filled by base and by flexible workers."""

    base: tuple[Nodes, ...]
    flexible: tuple[Nodes, ...]


def keep_apart(state: ClusterState) -> WorkerOrder:
    """Training nodes, lent nodes with base workers, and other lent ones."""
    lent = state.node_pools.lent
    on_lent = [] if not lent else [job for job in state.running if not lent.isdisjoint(job.nodes)]
    with_base = {name for job in on_lent for name in job.nodes[: job.widths[0]]}
    training = state.node_pools.names_by_pool["training"]
    based, unbased = lent & with_base, lent - with_base
    short = is_training_short(state, lent)
    base = (based, unbased, training) if short else (training, based, unbased)
    return WorkerOrder(base, (unbased, based, training))


class PoolLedger:
    """A ledger whose parts are filled in an order: another one for base than for flexible workers."""

    def __init__(
        self, state: ClusterState, order: Callable[[ClusterState], WorkerOrder] = keep_apart
    ) -> None:
        self._order = order(state)
        self._parts: dict[tuple[Nodes, Nodes], Nodes] = {}
        parts = {f"part {number}": NodeSet(part) for number, part in enumerate(self._order.base)}
        self._state = replace(state, sets={**(state.sets or {}), **parts})

    @cached_property
    def _ledger(self) -> Ledger:
        """Counted where something is to be placed."""
        return Ledger.of(self._state)

    def open_holds(self, job: str) -> None:
        self._ledger.open_holds(job)

    def close_holds(self, job: str) -> None:
        self._ledger.close_holds(job)

    def place_for(self, job: Job, workers: int, among: Among = None) -> tuple[str, ...] | None:
        """Nodes, taken, for what the job needs more to have so many workers; None if no fit."""
        base = max(0, min(workers, job.widths[0]) - job.workers)
        nodes = self._place_in_order(self._order.base, base, job.shape, among)
        if nodes is None:
            return None
        flexible = workers - job.workers - base
        more = self._place_in_order(self._order.flexible, flexible, job.shape, among)
        if more is None:
            self._ledger.give(nodes, job.gpus_per_worker, needs=job.needs)
            return None
        return nodes + more

    def _place_in_order(
        self, order: Sequence[Nodes], workers: int, shape: WorkerShape, among: Among
    ) -> tuple[str, ...] | None:
        """As many as fit on the first nodes, the rest on the next ones."""
        nodes: tuple[str, ...] = ()
        for part in order:
            left = workers - len(nodes)
            if left:
                mine = self._part_for(part, among)
                fitting = min(left, self._ledger.slots(shape.gpus, mine, needs=shape.needs))
                nodes += self._ledger.place(fitting, shape.gpus, mine, needs=shape.needs) or ()
        if len(nodes) < workers:
            self._ledger.give(nodes, shape.gpus, needs=shape.needs)
            return None
        return nodes

    def _part_for(self, part: Nodes, among: Among) -> Nodes:
        """The nodes of a part that a job may use; the same object for the same nodes."""
        if among is None:
            return part
        key = (part, among)
        if key not in self._parts:
            self._parts[key] = part & among
        return self._parts[key]


def is_training_short(state: ClusterState, lent: Nodes) -> bool:
    """Whether jobs wait that may use no lent node, for more than is free elsewhere."""
    restricted = {name for name, some in (state.sets or {}).items() if lent.isdisjoint(some.nodes)}
    if not lent or not restricted:
        return False
    waiting = [job for job in state.queued if job.eligible in restricted]
    if not waiting:
        return False
    free = sum(max(0, node.free_gpus) for node in state.nodes if node.pool == "training")
    return sum(job.widths[0] * job.gpus_per_worker for job in waiting) > free
