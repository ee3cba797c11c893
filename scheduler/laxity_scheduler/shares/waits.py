"""How long a start or a growth waits for GPUs that others hold to the end of their epochs.

A rule's plans count all GPUs as one pool that is shared anew at every instant. Whoever is told to
give GPUs back does so at the end of its epoch, once it has saved; and new workers join when the
epoch of the old ones ends. To a plan both are a cost of the change, beside that of the start:

    start     the time until so many GPUs are free, without those that hold promises if that does
    growth    the work that the wider job would have done until its new workers join, and the save

Who holds no promise gives first, and of these whose epoch ends first. A start that is planned for
later counts the wait as well: whoever holds the GPUs then has an epoch to end, too.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Floats
from laxity_scheduler.columns.share_table import Ints
from laxity_scheduler.shares.rows import NOBODY, Columns


def with_waits(columns: Columns, held: Ints, free: int) -> Columns:
    """The columns, with waits among what changes cost.

    `held` (n,): the level of the GPUs that each job holds, -1 without; `free`: GPUs that nobody
    holds.
    """
    runs = held >= 0
    if not runs.any():
        return columns
    has = np.where(runs, columns.width[np.arange(len(held)), np.maximum(held, 0)], 0)
    need = np.where(columns.width < NOBODY, columns.width - has[:, None], 0)
    givers = np.flatnonzero(runs)
    wait_s = _waits(need, free, has[givers], columns.freed[givers], columns.promised[givers])
    wider = need > 0
    cost = columns.change + np.where(wider, wait_s, 0.0)
    trains = np.flatnonzero(columns.level >= 0)
    cost[trains] = np.where(wider[trains], _growth(columns, trains, cost[trains]), cost[trains])
    return replace(columns, change=cost)


def _growth(columns: Columns, rows: Ints, joins: Floats) -> Floats:
    """What growing costs jobs that train: they go on as they are until the new workers join."""
    now_s = columns.total[rows, columns.level[rows]][:, None]
    then_s = np.maximum(joins, columns.freed[rows][:, None])
    with np.errstate(invalid="ignore"):
        less = np.clip(1.0 - columns.total[rows] / now_s, 0.0, 1.0)
    return np.where(np.isfinite(less), then_s * less, joins)


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
