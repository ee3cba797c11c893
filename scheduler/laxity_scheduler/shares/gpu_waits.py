"""How long a start waits for GPUs that others hold to the end of their epochs.

A rule's plans count all GPUs as one pool that is shared anew at every instant. But whoever is told
to give GPUs back does so at the end of its epoch, once it has saved. To a plan that wait is a cost
of the start, beside the start itself.

Who holds no promise gives first, and of these whose epoch ends first. A start that is planned for
later counts the wait as well: whoever holds the GPUs then has an epoch to end, too. Growth does not:
counted there, it makes what runs look dear to widen, and breeds stops.
"""

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.shares.rows import NOBODY, Columns


def with_waits(columns: Columns, held: Ints, free: int) -> Columns:
    """The columns, with waits among what starts cost.

    `held` (n,): the level of the GPUs that each job holds, -1 without; `free`: GPUs that nobody
    holds.
    """
    runs = held >= 0
    if not runs.any():
        return columns
    givers = np.flatnonzero(runs)
    gives = columns.width[givers, held[givers]]
    wait_s = _waits(columns.width, free, gives, columns.freed[givers], columns.promised[givers])
    starts = ~runs[:, None] & (columns.width < NOBODY)
    return columns._replace(change=columns.change + np.where(starts, wait_s, 0.0))


def _waits(
    need: Ints, free: int, gives: Ints, freed_s: Floats, promised: NDArray[np.bool_]
) -> Floats:
    """Seconds until so many GPUs are free; if never, until all that are given back are."""
    if not len(gives):
        return np.zeros(need.shape)
    order = np.lexsort((freed_s, promised))
    total = free + np.cumsum(gives[order])
    until_s = np.maximum.accumulate(freed_s[order])
    place = np.minimum(np.searchsorted(total, need), len(order) - 1)
    waits: Floats = np.where(need <= free, 0.0, until_s[place])
    return waits
