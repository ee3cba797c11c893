"""A job that cannot start, for want of an image or since its workers die, is tried less and less.

Started again at once each time, it would hold its GPUs for nothing, over and over. The first time it
is tried again at once: somebody else may have been quicker on its node. While it waits, the policy
does not see it; what it was promised stands and is decided on again when it is back.
"""

from dataclasses import replace
from typing import Final

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job

FIRST_S: Final = 60.0
LONGEST_S: Final = 3600.0
FAILED_START_CODES: Final = (
    "pods_do_not_fit",
    "workers_fail",
)  # why a job is stopped whose start has failed


def backoff_s(failed_starts: int) -> float:
    """How long a job waits that has failed to start so often in a row."""
    if failed_starts < 2:
        return 0.0
    return min(LONGEST_S, FIRST_S * 2.0 ** (min(failed_starts, 32) - 2))


def count_failed_starts(job: Job) -> int:
    """How often in a row it has failed to start, this time included; once formed, a row is over."""
    return 1 if job.formed else job.failed_starts + 1


def hide_backed_off_jobs(state: ClusterState) -> tuple[ClusterState, float]:
    """The state without jobs that are not to be tried yet, and when the next one is (FOREVER: none).

    It is the state itself if there are none. Who asks for a verdict (as its deadline was changed) is
    seen, and whose workers still terminate: their GPUs are on their way, nobody is stopped for more.
    """
    later = [
        job
        for job in state.jobs
        if job.not_before > state.now and not (job.workers or job.terminating_workers or job.asked)
    ]
    if not later:
        return state, FOREVER
    away = {job.id for job in later}
    visible_state = replace(
        state,
        jobs=tuple(job for job in state.jobs if job.id not in away),
        holds=tuple(hold for hold in state.holds if hold.job not in away),
    )
    return visible_state, min(job.not_before for job in later)
