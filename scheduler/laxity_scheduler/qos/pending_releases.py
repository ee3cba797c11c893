"""GPUs that are on their way: of jobs that stop or shrink, of pods that terminate, held for a job.

So are those of nodes that take no worker for a moment.

Nobody is stopped for what is coming anyway. Who was stopped for a job frees GPUs for that job; what
it does not need of them, and all that comes for nobody in particular, counts for all who wait, most
urgent first, each GPU once.
"""

from collections import Counter

from laxity_scheduler.allocation.victims import Need, gpus_of
from laxity_scheduler.capacity.ledger import USABLE
from laxity_scheduler.frame.fields import CHANGING, SIZE, TERMINATING
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import ClusterState, Hold
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.withdrawn_stops import was_served


class PendingReleases:
    """What is on its way in one snapshot; `shared` is what nobody has counted on yet, by node."""

    def __init__(self, state: ClusterState, forecasts: Forecasts) -> None:
        self._state = state
        self._usable = frozenset(node.id for node in state.nodes if node.pool in USABLE)
        self.asked_for: dict[str, list[Job]] = {}  # who was asked to stop, by beneficiary
        self.restarting: list[Job] = []  # stopped only to start again elsewhere
        self.shared: Counter[str] = Counter()
        self._surplus: dict[str, Counter[str]] = {}
        for job in forecasts.frame.where(forecasts.frame.column(CHANGING) > 0.0):
            self._leaves(job)
        self.shared.update(_terminating(state, forecasts))
        away = [node for node in state.nodes if node.away_gpus and node.id in self._usable]
        self.shared.update({node.id: node.away_gpus for node in away})

    def _leaves(self, job: Job) -> None:
        if job.pinned:
            return  # nobody carries out what it was asked for
        if stopping(job):
            whom = self._state.by_id.get(job.stop_for)
            if whom is None or was_served(whom, job):
                self.shared.update(self._gpus(job, 0))
            elif whom is job:
                self.restarting.append(job)
            else:
                self.asked_for.setdefault(whom.id, []).append(job)
        elif 0 < job.resize_to < job.workers:
            self.shared.update(self._gpus(job, job.resize_to))

    def _gpus(self, job: Job, keeps: int) -> Counter[str]:
        """What it leaves, on nodes that others may use."""
        return gpus_of(job, [node for node in job.nodes[keeps:] if node in self._usable])

    def victims_for(self, job: Job) -> tuple[str, ...]:
        """Who was asked to stop for it."""
        return tuple(victim.id for victim in self.asked_for.get(job.id, ()))

    def own(self, job: Job) -> Counter[str]:
        """GPUs by node that are on their way to this job, or held for it already."""
        gpus: Counter[str] = Counter()
        for victim in self.asked_for.get(job.id, ()):
            gpus.update(self._gpus(victim, 0))
        gpus -= self._surplus.get(job.id, Counter())
        for hold in self._state.holds:
            if self._is_held_for(hold, job):
                gpus[hold.node] += hold.gpus
        return gpus

    @property
    def held_for_running(self) -> list[Job]:
        """Running jobs for which GPUs are held, so that they grow."""
        names = sorted({hold.job for hold in self._state.holds} & self._state.by_id.keys())
        jobs = [self._state.by_id[name] for name in names]
        return [job for job in jobs if job.workers]

    def _is_held_for(self, hold: Hold, job: Job) -> bool:
        return hold.job == job.id and hold.until_at > self._state.now

    def share_surplus(self, job: Job, workers: int) -> None:
        """It needs so many more workers: what was stopped for it beyond that is for others."""
        size, missing = job.gpus_per_worker, workers
        for hold in self._state.holds:
            if self._is_held_for(hold, job):
                missing -= hold.gpus // size
        freed: Counter[str] = Counter()
        for victim in self.asked_for.get(job.id, ()):
            freed.update(self._gpus(victim, 0))
        for node in sorted(freed):
            takes = min(freed[node] // size, max(0, missing))
            missing -= takes
            freed[node] -= takes * size
        self._surplus[job.id] = +freed
        self.shared.update(freed)

    def use(self, need: Need) -> None:
        """What comes for nobody in particular goes to a job as far as its own is not enough.

        The rest is left for those after it, so that nobody is stopped twice for the same need.
        """
        missing, size = need.workers - need.workers_fitting, need.gpus_per_worker
        in_quota = self._use_quota(need) if need.quota else {}
        by_quota = need.gain_with(in_quota)
        missing -= by_quota
        for node in sorted(self.shared):
            if missing <= 0:
                return
            freed = {**in_quota, node: self.shared[node]}
            more = min(missing, need.gain_with(freed) - by_quota)
            if more > 0 and node != need.quota:
                self.shared[node] = max(0, self.shared[node] - more * size)
                missing -= more

    def _use_quota(self, need: Need) -> dict[str, int]:
        """What comes in its quota and it needs, taken."""
        has = need.quota_left + need.coming.get(need.quota, 0)
        lacks = max(0.0, need.workers * need.gpus_per_worker - has)
        takes = int(min(lacks, self.shared[need.quota]))
        self.shared.subtract({need.quota: takes} if takes else {})
        return {need.quota: takes}


def _terminating(state: ClusterState, forecasts: Forecasts) -> Counter[str]:
    """GPUs by node and by quota of pods that are on their way out and held for nobody.

    A row says how many pods terminate, not where: they are looked for on nodes with busy GPUs that
    no running worker explains.
    """
    frame = forecasts.frame
    left = int((frame.column(TERMINATING) * frame.column(SIZE)).sum())
    terminating: Counter[str] = Counter()
    if not left:
        return terminating
    ours: Counter[str] = Counter()
    for job in state.running:
        ours.update(gpus_of(job, job.nodes))
    held: Counter[str] = Counter()
    for hold in state.holds:
        if hold.until_at > state.now:
            held[hold.node] += hold.gpus
    for job in state.jobs if state.quotas else ():
        if job.quota and job.terminating_workers:
            terminating[job.quota] += job.terminating_workers * job.gpus_per_worker
    for node in state.nodes:
        awaited = max(0, held[node.id] - max(0, node.free_gpus))  # the others held are free
        gpus = min(left, node.gpus - node.free_gpus - node.away_gpus - ours[node.id] - awaited)
        if gpus > 0:
            terminating[node.id] += gpus
            left -= gpus
    return terminating
