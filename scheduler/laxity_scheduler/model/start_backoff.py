"""Backoff for jobs whose starts fail, because an image is missing or their workers die.

Started again at once each time, such a job would hold its GPUs for nothing. After the first failure it
is tried again at once: another pod may have taken its place on the node. During the backoff the policy
does not see the job (`held_up`).
"""

from typing import Final

from laxity.backoff import Backoff
from laxity_scheduler.model.job import Job

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
