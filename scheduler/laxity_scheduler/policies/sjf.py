"""Shortest job first: by predicted run time, each job on its least width, never stopped.

Baseline (algorithms.md 7.1).
"""

from typing import Final

from laxity_scheduler.allocation.order import Order, policy_of

ORDER: Final = Order("sjf", lambda _submitted_at, _deadline_at, predicted_s, _gpus: predicted_s())
decide = policy_of(ORDER)
