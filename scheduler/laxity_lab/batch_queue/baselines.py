"""When users without a model submit a successor.

`reactive` waits until the predecessor ends. `average` looks once, when the predecessor starts, at
the waits of the last jobs that started, and submits that much before the end. `average_now` looks
again every ten minutes: a fairer opponent, since the paper's average is two days old when it counts.
`slurm_estimate` asks the scheduler's plan every ten minutes, as `sbatch --test-only` does.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from laxity_lab.batch_queue.successor import Pair
from laxity_scheduler.chains.features import DECIDE_EVERY_S
from laxity_scheduler.chains.queue_plan import TICK_S
from laxity_scheduler.chains.snapshot_loop import recent_mean_s


def reactive(pair: Pair) -> float:
    """The predecessor's end."""
    return pair.ended_at


def average(pair: Pair) -> float:
    """The end minus the mean wait that is known when the predecessor starts."""
    started_at, wait_s = pair.without_successor().waits()
    mean_s = recent_mean_s(started_at, wait_s, pair.started_at)
    return max(pair.submitted_at + TICK_S, pair.ended_at - mean_s)


def average_now(pair: Pair) -> float:
    """The first decision at which the mean wait of then reaches the predecessor's end."""
    started_at, wait_s = pair.without_successor().waits()
    for decided_at in np.arange(pair.started_at, pair.ended_at, DECIDE_EVERY_S):
        if decided_at + recent_mean_s(started_at, wait_s, decided_at) >= pair.ended_at:
            return float(decided_at)
    return pair.ended_at


def slurm_estimate(pair: Pair) -> float:
    """The first decision at which the scheduler's plan would start the successor no earlier."""
    for decided_at, planned_at in pair.plan_starts(DECIDE_EVERY_S):
        if planned_at >= pair.ended_at:
            return decided_at
    return pair.ended_at


Method = Callable[[Pair], float]  # when it submits the successor
METHODS: Final[Mapping[str, Method]] = {
    "reactive": reactive,
    "average": average,
    "average_now": average_now,
    "slurm_estimate": slurm_estimate,
}
