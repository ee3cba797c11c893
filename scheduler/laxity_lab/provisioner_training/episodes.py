"""Predecessors' lives in steps of an hour, as policies learn from them.

Each step knows what submitting would lead to, since the simulator was asked at every hour. The last
step is the predecessor's end, where everybody submits.
"""

from dataclasses import dataclass

import numpy as np

from laxity_lab.provisioner_training.samples import Samples
from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.prices import Prices
from laxity_scheduler.frame.arrays import Bools, Ints


@dataclass(frozen=True, slots=True)
class Episodes:
    """Samples start by start, `steps` of each; `cost` is (starts, steps), of submitting there."""

    samples: Samples
    steps: int
    cost: Floats

    def __len__(self) -> int:
        return len(self.cost)

    def part(self, chosen: Ints) -> "Episodes":
        """Some of the starts, in this order."""
        rows = (chosen[:, None] * self.steps + np.arange(self.steps)).ravel()
        return Episodes(self.samples.rows(rows), self.steps, self.cost[chosen])

    @property
    def difference_h(self) -> Floats:
        """(starts, steps)."""
        return self.samples.difference_h.reshape(-1, self.steps)

    @property
    def began_at(self) -> Floats:
        """(starts,)."""
        return self.samples.began_at[:: self.steps]

    def chosen_steps(self, submits: Bools) -> Ints:
        """Where a policy submits, (starts,), by what it would do at each step, (starts, steps)."""
        last = np.ones((len(self), 1), dtype=np.bool_)
        steps: Ints = np.argmax(np.concatenate((submits[:, :-1], last), axis=1), axis=1)
        return steps


def as_episodes(samples: Samples, prices: Prices) -> Episodes:
    """Episodes of hourly samples; starts of which a step is missing are left out.

    ValueError if none is left.
    """
    _, start, counts = np.unique(samples.began_at, return_inverse=True, return_counts=True)
    steps = int(counts.max(initial=0))
    whole = samples.rows(np.flatnonzero(counts[start] == steps))
    if steps < 2:
        raise ValueError("no start has two hourly probes; choose a longer --limit")
    cost = prices.cost(whole.difference_h[:, None], np.ones(1))
    return Episodes(whole, steps, cost.reshape(-1, steps))
