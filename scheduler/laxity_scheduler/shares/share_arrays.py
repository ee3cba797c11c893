"""What the loops over shares work on: jobs as columns, a rule as numbers.

Arrays have one row per job and one column per level of its widths; times are seconds from now. The
loops are compiled where numba is installed, so a record here is a named tuple of arrays or numbers.
"""

from typing import Final, NamedTuple

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints

TINY: Final = 1e-6

# modes, as numbers since loops know no strings
NO_ADMISSION, GREEDY = 0, 1
CHEAPEST, DEAREST = 0, 1
NEWCOMER, PROMISED, TURNED_AWAY = 0, 1, 2


class JobArrays(NamedTuple):
    """n jobs on L levels. `level` is the present one, -1 without; `left` the share still to do."""

    due: Floats  # (n,)
    hard: Ints  # (n,): 1 or 0
    left: Floats  # (n,)
    total: Floats  # (n, L): seconds of the whole job
    width: Ints  # (n, L): GPUs
    levels: Ints  # (n,): how many it has
    level: Ints  # (n,)
    pause: Floats  # (n,): until it goes on as it is
    change: Floats  # (n, L): what it costs to start there


class RuleParameters(NamedTuple):
    """A `ShareRule` and the cluster: see there."""

    gpus: float
    admission: int
    reserves: int
    direction: int
    careful: float
    replans: int
    drops: int
