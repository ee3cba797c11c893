"""How long the cluster takes for all jobs, and so which job alone decides when the last one ends.

Whatever the order, jobs end no sooner than

    drain = sum(rest x GPUs) / (GPUs that there are - GPUs that work to come takes)       seconds

and no sooner than the longest of them. So a job whose own rest is as long as the drain must not be
put off: each second that it waits is a second more to the end of all. One whose rest is shorter may.

Work to come is what the last few submissions brought, per second since the first of them: nobody
says that a batch is complete, but the longer nobody submits anything, the less is expected. Where it
takes all GPUs there is no end, and no job decides it. Our own reading, as is the rest of it: the
paper (PickyMan) names the makespan as a goal and says no rule for it.
"""

from collections.abc import Mapping
from heapq import nlargest
from typing import Final

from laxity_scheduler.capacity.ledger import USABLE
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job

RECENT_SUBMISSIONS: Final = 4  # submissions that tell how much work goes on coming


def remaining_makespan_s(state: ClusterState, rest_s: Mapping[str, float]) -> float:
    """Seconds until all jobs in `rest_s` have ended; FOREVER if work comes as fast as it is done."""
    jobs = [job for job in state.jobs if job.id in rest_s]
    if not jobs:
        return 0.0
    gpus = sum(node.gpus for node in state.nodes if node.pool in USABLE)
    work = {job.id: rest_s[job.id] * (job.gpus or gpus_to_start(job)) for job in jobs}
    new = nlargest(RECENT_SUBMISSIONS, jobs, key=lambda job: (job.submitted_at, job.id))
    since_s = state.now - new[-1].submitted_at
    coming = sum(work[job.id] for job in new)
    if gpus * since_s <= coming:
        return FOREVER
    return sum(work.values()) / (gpus - coming / since_s)


def gpus_to_start(job: Job) -> int:
    """The GPUs that the job needs to start."""
    return job.widths[0] * job.gpus_per_worker
