"""Nodes that an autoscaler adds once pods wait for them: what is left of them as jobs start on them.

Who starts on them has its pods pending until they come. So they are asked only where the nodes that are
there have no room, the pool that comes soonest first.
"""

from dataclasses import replace
from typing import Final

from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.model.cluster import Coming, Pool
from laxity_scheduler.model.job import Job
from laxity_scheduler.qos.context import DecisionContext

POOLS: Final[tuple[Pool, ...]] = ("coming",)


class ComingNodes:
    """The `pools` of a context that may grow, each with a ledger of what is free on what may come."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        state = context.state
        nodes = [node for node in context.reservations.room.coming if node.coming is not None]
        self._ledgers = {
            coming: Ledger.of(
                replace(state, nodes=tuple([node for node in nodes if node.coming == coming])),
                pools=POOLS,
            )
            for coming in {node.coming for node in nodes if node.coming is not None}
        }
        self.pools = sorted(self._ledgers, key=lambda coming: (coming.within_s, coming.pool))

    def place(
        self, coming: Coming, job: Job, workers: int, hold_s: float, *, claimed: bool
    ) -> tuple[str, ...]:
        """Nodes for all of its workers, taken: of this pool, with those that are there if need be; or ()."""
        context, size = self._context, job.gpus_per_worker
        if workers * size > context.placement.quota_left(job):
            return ()
        may = context.state.eligible_nodes(job)
        slots = self._ledgers[coming].slots(size, may, needs=job.needs)
        there: tuple[str, ...] = ()
        if 0 < slots < workers <= slots + context.ledger.slots(size, may, needs=job.needs):
            there = (
                context.placement.place(
                    context.ledger, job, workers - slots, hold_s, claimed=claimed
                )
                or ()
            )
        nodes = self._place_coming(coming, job, workers - len(there), hold_s, claimed=claimed)
        if nodes is None:
            context.ledger.give(there, size, needs=job.needs)
            return ()
        context.placement.spend_quota(job, len(nodes))
        return (*there, *nodes)

    def _place_coming(
        self, coming: Coming, job: Job, workers: int, hold_s: float, *, claimed: bool
    ) -> tuple[str, ...] | None:
        """On regions that claims need, only where these leave room when the nodes are there."""
        context, ledger = self._context, self._ledgers[coming]
        if context.reservations.roomy or not context.placement.regions:
            may = context.state.eligible_nodes(job)
            return ledger.place(workers, job.gpus_per_worker, may, needs=job.needs)
        return context.placement.place(
            ledger, job, workers, hold_s, claimed=claimed, from_s=coming.within_s
        )
