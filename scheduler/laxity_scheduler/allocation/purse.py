"""GPUs that jobs share anew, on the cluster and on each region: what one after the other may take."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.promising.regions import regions_of


class Purse:
    """What is left as jobs take their shares."""

    def __init__(self, state: ClusterState, jobs: Iterable[Job], whole: int) -> None:
        """`whole` GPUs; on regions the free ones and those that these jobs hold.

        It `is_overdrawn` where others hold more of a region than there is, as of a quota that was lowered.
        """
        self.whole = whole
        self._regions = regions_of(state)
        there = {node.id: node.free_gpus for node in state.nodes if node.coming is None}
        free = Counter(there) if self._regions else {}
        self._left = [
            state.quota_left[region.quota]
            if region.quota
            else sum(map(free.__getitem__, region.nodes))
            for region in self._regions
        ]
        self.is_overdrawn = any(left < 0 for left in self._left)
        if self._regions:
            for job in jobs:
                self._spend(job, job.workers, 0)

    def take(self, job: Job, before: int, workers: int) -> bool:
        """So many workers instead of `before`, if there is room; else nothing is taken."""
        gpus = (workers - before) * job.gpus_per_worker
        if gpus > self.whole:
            return False
        for region, left in zip(self._regions, self._left, strict=True):
            more = region.workers(job, workers) - region.workers(job, before)
            if more * job.gpus_per_worker > left:
                return False
        self.whole -= gpus
        self._spend(job, before, workers)
        return True

    def covers(self, jobs: Sequence[Job], workers: Mapping[str, int]) -> bool:
        """Whether each could take so many workers, by its id; nothing is taken."""
        whole, left = self.whole, list(self._left)
        covers = all(self.take(job, 0, workers[job.id]) for job in jobs)
        self.whole, self._left = whole, left
        return covers

    def _spend(self, job: Job, before: int, workers: int) -> None:
        for place, region in enumerate(self._regions):
            more = region.workers(job, workers) - region.workers(job, before)
            self._left[place] -= more * job.gpus_per_worker
