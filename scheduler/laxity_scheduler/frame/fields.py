"""What the columns of a frame's table hold, and its levels: numbers, since compiled loops know no names.

Instants that there are not are no numbers; seconds stand for themselves, yes is 1.
"""

from collections.abc import Mapping
from typing import Final

FIELDS: Final = 34
(
    WORKERS,
    SIZE,  # GPUs per worker
    FORMED_AT,  # the width that it formed at; 0 before
    RESIZING,  # asked for another width
    TERMINATING,  # workers
    PINNED,
    STAYS,  # it may not be preempted
    HAS_FORMED,
    PARKED,
    STOPPING,  # told to, or parked
    CHANGING,  # stopping, resizing, or to make way for somebody
    STARTING,
    PLAIN,  # it starts or trains at the width that it has, and its end there is known
    WAITING,  # neither workers nor pods that end, and it may be started
    LEFT,  # epochs
    ANEW,  # epochs that it would train after a stop, if it holds no state; else 0
    LEVELS,
    MEAN_EPOCH_S,  # at the width that it has
    BEGUN_AT,  # its running epoch
    RESUMED_AT,
    CHANGED_AT,  # its width
    QUEUED_AT,
    SUBMITTED_AT,
    DUE_AT,
    SERVICE,
    WANTS,  # a verdict
    STOPS_LATE,
    PROMISED,
    PROMISED_DUE_AT,  # before all time without a promise
    PROMISED_P90_AT,
    TROUBLED,  # its promise is broken, or in danger
    PLANNED_AT,  # when its promise planned to start it
    LATE_S,  # P90 of the part in flight: its start, epoch or finishing
    ANYWHERE,  # it stops inside an epoch
) = range(FIELDS)
KINDS: Final = 7
WIDTH, TOTAL, START, STOP, UNIT, END, OVERDUE = range(KINDS)  # of a level; seconds, but the last
OWN, FORMED, ASKED, EXTRA = -3, -2, -1, 3  # levels: the width it has, formed at, was asked to have
NOBODY: Final = -9  # no level: no workers
HARD, SOFT, BEST_EFFORT = 0.0, 1.0, 2.0
SERVICES: Final[Mapping[str, float]] = {"hard": HARD, "soft": SOFT, "best_effort": BEST_EFFORT}
TROUBLES: Final = frozenset({"no_try_in_time", "promise_broken", "promise_in_danger"})
