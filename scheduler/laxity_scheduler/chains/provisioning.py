"""When a learned provisioner submits a successor: one decision every ten minutes.

A point submits once it predicts no more than half an hour of overlap (Mirage). A policy submits when
that is the likelier of its actions. A distribution submits once waiting ten minutes more would not
lower the expected cost, at the user's prices of an hour of interruption and of an hour of overlap: at
4 to 1, once as many hours are left as four of five waits would take at most.
"""

from typing import Final

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.features import DECIDE_EVERY_S, Windows
from laxity_scheduler.chains.model_kinds import Model
from laxity_scheduler.chains.network_models import PolicyModel
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.model.job import HOUR_S

MOST_OVERLAP_H: Final = 0.5


def should_submit(difference_h: Floats, weights: Floats, prices: Prices) -> Bools:
    """Whether to submit now, (n,), by predictions (n, k)."""
    if len(weights) == 1:
        return difference_h[:, 0] >= -MOST_OVERLAP_H
    later_h = difference_h + DECIDE_EVERY_S / HOUR_S
    return prices.cost(difference_h, weights) <= prices.cost(later_h, weights)


def decide(model: Model, windows: Windows, prices: Prices) -> Bools:
    """Whether to submit now, (n,), by what is known at n decisions."""
    if isinstance(model, PolicyModel):
        return model.submits(windows)
    return should_submit(model.predict_h(windows), model.weights, prices)
