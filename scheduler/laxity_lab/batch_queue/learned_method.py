"""A learned provisioner as a method of `laxity bench chains`."""

import time
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from laxity_lab.batch_queue.baselines import average
from laxity_lab.batch_queue.successor import Pair, watch_queue
from laxity_scheduler.chains.features import WINDOW, Windows
from laxity_scheduler.chains.model_file import Provisioner
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.chains.provisioning import decide
from laxity_scheduler.chains.value_models import CalibratedModel
from laxity_scheduler.frame.arrays import Bools

TIMED: Final = 3  # decisions of a start that are made one by one, to see how long they take


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
