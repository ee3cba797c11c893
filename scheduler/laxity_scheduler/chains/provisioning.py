"""When a learned provisioner submits a successor: one decision every ten minutes.

A point submits once it predicts no more than half an hour of overlap (Mirage). A policy submits when
that is the likelier of its actions. A distribution submits once waiting ten minutes more would not
lower the expected cost, at the user's prices of an hour of interruption and of an hour of overlap: at
4 to 1, once as many hours are left as four of five waits would take at most.
"""

import time
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.baselines import average
from laxity_scheduler.chains.features import DECIDE_EVERY_S, WINDOW, Windows, watch_queue
from laxity_scheduler.chains.model_file import Provisioner
from laxity_scheduler.chains.model_kinds import Model
from laxity_scheduler.chains.network_models import PolicyModel
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.chains.successor import Pair
from laxity_scheduler.chains.value_models import CalibratedModel
from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.model.job import HOUR_S

MOST_OVERLAP_H: Final = 0.5
TIMED: Final = 3  # decisions of a start that are made one by one, to see how long they take


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


@dataclass(slots=True)
class LearnedMethod:
    """A method of the bench. `decision_s` is how long decisions took that were made alone."""

    provisioner: Provisioner
    prices: Prices
    decision_s: list[float] = field(default_factory=list)

    def __call__(self, pair: Pair) -> float:
        """The first decision to submit, else the predecessor's end.

        `calibrated` decides from the predecessor's submission on, others from its start on.
        Snapshots with less than a day before them follow the average baseline.
        """
        history = watch_queue(pair)
        model = self.provisioner.model
        may_wait = isinstance(model, CalibratedModel)  # others learned to decide while it runs
        first_at = pair.submitted_at if may_wait else pair.started_at
        rows = np.flatnonzero(history.taken_at >= first_at)
        cold, warm = rows[rows < WINDOW - 1], rows[rows >= WINDOW - 1]
        early_at = history.taken_at[cold]
        submits_at = early_at[early_at >= average(pair)] if len(cold) else early_at
        if len(submits_at):
            return float(submits_at[0])
        for row in warm[:TIMED]:
            began_s = time.perf_counter()
            self._decide(history.windows(np.array([row])))
            self.decision_s.append(time.perf_counter() - began_s)
        chosen = np.flatnonzero(self._decide(history.windows(warm))) if len(warm) else warm
        return float(history.taken_at[warm[chosen[0]]]) if len(chosen) else pair.ended_at

    def _decide(self, windows: Windows) -> Bools:
        return decide(self.provisioner.model, windows, self.prices)
