"""When a learned provisioner submits a successor: one decision every ten minutes.

A point submits once it predicts no more than half an hour of overlap (Mirage). A policy submits when
that is the likelier of its actions. A distribution submits once waiting ten minutes more would not
lower the expected cost, at the user's prices of an hour of interruption and of an hour of overlap: at
4 to 1, once as many hours are left as four of five waits would take at most. It never submits where it
expects to save fewer hours than overlap, whatever the prices: who reacts has no overlap at all.
"""

from typing import Final

import numpy as np

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


def wins(difference_h: Floats, left_h: Floats, weights: Floats) -> Bools:
    """Whether submitting now saves at least as many hours as it overlaps, (n,), against who reacts.

    Of predictions (n, k), so many hours before the predecessor's end, (n,).
    """
    waits_h = difference_h + left_h[:, None]
    saved_h = np.maximum(waits_h, 0.0) - np.maximum(difference_h, 0.0)
    won: Bools = (saved_h - np.maximum(-difference_h, 0.0)) @ weights >= 0.0
    return won


def decide(model: Model, windows: Windows, prices: Prices) -> Bools:
    """Whether to submit now, (n,), by what is known at n decisions."""
    if isinstance(model, PolicyModel):
        return model.submits(windows)
    difference_h = model.predict_h(windows)
    submits = should_submit(difference_h, model.weights, prices)
    if len(model.weights) == 1:
        return submits
    return submits & wins(difference_h, windows.left_h, model.weights)
