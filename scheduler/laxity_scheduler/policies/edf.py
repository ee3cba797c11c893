"""Earliest deadline first, hard before soft, each job on the fewest workers that meet its deadline.

Baseline (algorithms.md 7.2, the *minimum* variant with skip): no promises, no growth, no preemption.
A job that is late on any width starts on its fastest one; without a deadline, on its least.
"""

from typing import Final

from laxity_scheduler.allocation.order import Order, Widths, policy_of
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.queueing import slack

ALMOST_S: Final = 1e-3


def fewest_in_time(job: Job, forecasts: Forecasts) -> Widths:
    """The least width in time, until its slack on it is used up."""
    slack_s, workers = slack(job, forecasts)
    lasts = 0.0 <= slack_s < FOREVER
    return (workers,), forecasts.now + slack_s + ALMOST_S if lasts else FOREVER


ORDER: Final = Order(
    "edf",
    lambda _submitted_at, deadline_at, _predicted_s, _gpus: deadline_at,
    fewest_in_time,
    hard_first=True,
)
decide = policy_of(ORDER)
