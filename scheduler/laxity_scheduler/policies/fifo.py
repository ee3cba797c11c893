"""First in, first out: each job on its widest width that fits, never changed, never stopped.

Baseline (algorithms.md 7.1). What does not fit is passed over; packed strictly, the head blocks.
"""

from typing import Final

from laxity_scheduler.allocation.order import Order, Widths, policy_of
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job


def widest_first(job: Job, forecasts: Forecasts) -> Widths:
    return job.widths[::-1], FOREVER


ORDER: Final = Order(
    "fifo", lambda submitted_at, _deadline_at, _predicted_s, _gpus: submitted_at, widest_first
)
decide = policy_of(ORDER)
