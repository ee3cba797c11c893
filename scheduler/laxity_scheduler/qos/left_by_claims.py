"""What claims leave to jobs without one, as one after the other starts.

Over time, where not all claims run at once; else what no claim will ever need, for jobs that cannot be stopped.
"""

from collections.abc import Sequence
from itertools import islice

from laxity_scheduler.model.cluster import NO_NODES
from laxity_scheduler.model.job import Job
from laxity_scheduler.promising.claims import hold_s
from laxity_scheduler.promising.reserve import Profile, find_end, find_slot
from laxity_scheduler.qos.context import DecisionContext


class LeftByClaims:
    """GPUs for jobs without a claim."""

    def __init__(self, context: DecisionContext) -> None:
        self._context = context
        self._forecasts = context.forecasts
        reservations = context.reservations
        self._spare = reservations.spare_gpus
        self.rest = None if reservations.roomy else reservations.left_by_claims()
        self.gpus = self.rest  # the same in GPUs as they are (`node_sharing`)
        self._sharing, self._noted = reservations.room.sharing, 0
        self._tied = NO_NODES.union(*(region.nodes for region in reservations.room.regions))
        if self.rest is not None and self._sharing.counts:
            self.gpus = Profile(self.rest.edges, self.rest.parts[-1:])

    def is_enough_for(self, job: Job, after_s: float = 0.0) -> bool:
        """Whether claims are kept although this job starts: it can be stopped before they need it.

        `after_s`: when the nodes that it starts on are there.
        """
        workers = self._forecasts.curve(job).least
        gpus = workers * job.gpus_per_worker
        if self.rest is None or self.gpus is None:
            return job.preemptible or gpus <= self._spare
        return self._is_free([self.rest, self.gpus], job, workers, after_s)

    def _is_free(self, profiles: Sequence[Profile], job: Job, workers: int, after_s: float) -> bool:
        """Whether claims leave so many workers of it their GPUs on all of these, as long as it holds them."""
        gpus, until_s = (
            workers * job.gpus_per_worker,
            after_s + hold_s(self._forecasts, job, workers),
        )
        for profile in profiles:
            first = find_slot(profile, after_s) if after_s else 0
            if not (profile.free[first : find_end(profile, until_s)] >= gpus).all():
                return False
        return True

    def place_beside(self, job: Job, workers: int, held_s: float) -> tuple[str, ...] | None:
        """Nodes beside workers that fill them, where it is in none's way (`node_sharing`)."""
        context, sharing = self._context, self._sharing
        if self.gpus is None or not sharing.counts:
            return None
        if not self._is_free([self.gpus], job, workers, 0.0):
            return None
        for start in islice(context.starts.values(), self._noted, None):
            sharing.note_start(start.waiting.job, start.nodes)
        self._noted = len(context.starts)
        nodes = [name for name in sharing.beside(job, workers) if name not in self._tied]
        if not nodes:
            return None
        rules = context.placement.rules(context.ledger, [job], [held_s], claimed=False)
        return context.ledger.site_on(nodes, workers, job.shape, rules)

    def take(self, job: Job, workers: int, after_s: float = 0.0, *, beside: bool = False) -> None:
        """It starts; `beside` workers that fill nodes it takes nothing that these could use."""
        gpus = workers * job.gpus_per_worker
        if not job.preemptible:
            self._spare -= gpus
        until_s = after_s + hold_s(self._forecasts, job, workers)
        if self.rest is not None and not beside:
            self.rest.add(after_s, until_s, -gpus)
        if self.gpus is not None and self.gpus is not self.rest:
            self.gpus.add(after_s, until_s, -gpus)
