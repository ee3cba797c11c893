"""Backoff for jobs whose starts fail, because an image is missing or their workers die.

Started again at once each time, such a job would hold its GPUs for nothing. After the first failure it
is tried again at once: another pod may have taken its place on the node. During the backoff the policy
does not see the job. Its promise stands, and is decided on again afterwards.
"""

from dataclasses import replace
from typing import Final

from laxity.backoff import Backoff
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job

BACKOFF: Final = Backoff(first_s=60.0, longest_s=3600.0)
FAILED_START_CODES: Final = (
    "pods_do_not_fit",
    "workers_fail",
)  # reasons of stops after failed starts


def backoff_s(failed_starts: int) -> float:
    """Seconds that a job waits after this many failed starts in a row."""
    return BACKOFF.delay_s(failed_starts - 1)


def count_failed_starts(job: Job) -> int:
    """The number of failed starts in a row, this one included; a training that formed ends the row."""
    return 1 if job.formed else job.failed_starts + 1


def hide_backed_off_jobs(state: ClusterState) -> tuple[ClusterState, float]:
    """The state without jobs in backoff, and when the next backoff ends (FOREVER: none).

    It is the same object if there are none. Jobs that ask for a verdict stay, since their deadline was
    changed. So do jobs whose workers still terminate: their GPUs will be free, and no other job must be
    stopped for them.
    """
    later = [
        job
        for job in state.jobs
        if job.not_before > state.now and not (job.workers or job.terminating_workers or job.asked)
    ]
    if not later:
        return state, FOREVER
    away = {job.id for job in later}
    visible_state = replace(state, jobs=tuple(job for job in state.jobs if job.id not in away))
    return visible_state, min(job.not_before for job in later)
