# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""How long a job still takes from its row and its curve: `Forecasts` and `reserve.simulate` as loops.

The same answers in the same floating-point operations, at one quantile. A row (F,) says where the
job is, its levels (4, L + 3) what each width takes; what they hold stands in `lanes`. The last three
levels are the widths that it has, that it formed at, and that it was asked to have.
"""

from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.frame.lanes import (
    ASKED,
    BEGUN_AT,
    CHANGED_AT,
    FORMED,
    HAS_FORMED,
    LEFT,
    LEVELS,
    NOBODY,
    OWN,
    PARKED,
    RESUMED_AT,
    START,
    STOP,
    STOPPING,
    TOTAL,
    WIDTH,
    WORKERS,
)

TINY_S: Final = 1e-6  # as in `remaining`
MOST_OF_AN_EPOCH: Final = 0.99  # as in `curve`
NEVER: Final = np.inf


@jit
def epoch_s(row: Floats, levels: Floats, at: int) -> float:
    found_s: float = levels[TOTAL, at] / max(1.0, row[LEFT])
    return found_s


@jit
def phi(row: Floats, levels: Floats, now: float) -> float:
    """The share of its running epoch that is done; negative while it re-forms for it."""
    if np.isnan(row[BEGUN_AT]) or row[PARKED] or not row[WORKERS]:
        return 0.0
    whole_s = epoch_s(row, levels, FORMED)
    if not 0.0 < whole_s < NEVER:
        return 0.0
    found_s: float = min(MOST_OF_AN_EPOCH, max(-1.0, (now - row[BEGUN_AT]) / whole_s))
    return found_s


@jit
def start_left_s(row: Floats, levels: Floats, now: float) -> float:
    """How long until a started job does its first useful step; 0 once it trains."""
    if not row[WORKERS] or row[HAS_FORMED] or not np.isnan(row[BEGUN_AT]):
        return 0.0
    started_at = now if np.isnan(row[RESUMED_AT]) else row[RESUMED_AT]
    cost_s = levels[START, OWN]
    found_s: float = min(cost_s, max(0.0, started_at + cost_s - now))
    return found_s


@jit
def boundary_s(row: Floats, levels: Floats, now: float) -> float:
    """How long until its running epoch ends; 0 if it is parked at an epoch's end."""
    if row[PARKED]:
        return 0.0
    whole_s = epoch_s(row, levels, FORMED)
    return start_left_s(row, levels, now) + (1.0 - phi(row, levels, now)) * whole_s


@jit
def freed_s(row: Floats, levels: Floats, now: float) -> float:
    """How long until its GPUs are free, if it is (or was) asked to stop at its epoch's end."""
    found_s: float = boundary_s(row, levels, now) + levels[STOP, OWN]
    return found_s


@jit
def join_s(row: Floats, levels: Floats, at: int, now: float) -> float:
    """How long until new workers could join; 0 when none are new."""
    workers, has = levels[WIDTH, at], row[WORKERS]
    if workers < has or (workers == has and np.isnan(row[CHANGED_AT])):
        return 0.0
    cost_s: float = levels[START, at]
    if workers > has:
        return cost_s
    found_s: float = min(cost_s, max(0.0, row[CHANGED_AT] + cost_s - now))
    return found_s


@jit
def rest_s(row: Floats, levels: Floats, at: int, now: float) -> float:
    """Seconds from now to the end if it is to have this level from now on."""
    total_s, left = levels[TOTAL, at], row[LEFT]
    if not left:
        return 0.0
    if total_s == NEVER:
        return NEVER
    if not row[WORKERS]:
        waits_s: float = levels[START, at] + total_s
        return waits_s
    if row[STOPPING]:
        return resumed_s(row, levels, at, now)
    if levels[WIDTH, at] == levels[WIDTH, FORMED] and levels[WIDTH, at] == row[WORKERS]:
        done = phi(row, levels, now) / left
        found_s: float = start_left_s(row, levels, now) + total_s * (1.0 - done)
        return found_s
    return changed_s(row, levels, at, now)


@jit
def resumed_s(row: Floats, levels: Floats, at: int, now: float) -> float:
    """Stopped at its epoch's end, then started again at once."""
    left, free_s = row[LEFT], freed_s(row, levels, now)
    if not row[PARKED]:
        left -= 1.0
    if left <= 0.0:
        return free_s
    again_s = levels[START, at] + left * epoch_s(row, levels, at)
    found_s: float = max(free_s, 0.0) + again_s
    return found_s


@jit
def changed_s(row: Floats, levels: Floats, at: int, now: float) -> float:
    """Running at one width, forming at another at the first epoch's end that allows it."""
    whole_s, left = epoch_s(row, levels, FORMED), row[LEFT]
    ready_s = join_s(row, levels, at, now)
    end_s, done = boundary_s(row, levels, now), 1.0
    while end_s < ready_s - TINY_S and done < left and whole_s > 0.0:
        more = min(left - done, max(1.0, -(-(ready_s - TINY_S - end_s) // whole_s)))
        end_s, done = end_s + more * whole_s, done + more
    if done >= left:
        return end_s
    found_s: float = end_s + levels[STOP, at] + (left - done) * epoch_s(row, levels, at)
    return found_s


@jit
def trajectory_s(row: Floats, levels: Floats, now: float) -> float:
    """Seconds from now to its end if nothing is decided (queued: if started now, narrowest)."""
    return rest_s(row, levels, ASKED if row[WORKERS] else 0, now)


@jit
def times_s(table: Floats, levels: Floats, now: float) -> tuple[Floats, Floats, Floats]:
    """Of all rows: when it ends; when its epoch does, and when its GPUs are free if it is stopped."""
    ends, boundary, freed = np.zeros(len(table)), np.zeros(len(table)), np.zeros(len(table))
    for row in range(len(table)):
        ends[row] = trajectory_s(table[row], levels[row], now)
        if table[row, WORKERS]:
            boundary[row] = boundary_s(table[row], levels[row], now)
            freed[row] = freed_s(table[row], levels[row], now)
    return ends, boundary, freed


@jit
def slacks_s(table: Floats, levels: Floats, rows: Ints, left_s: Floats, now: float) -> Floats:
    """Spare seconds of these rows on the least level in time; negative: on the fastest one."""
    found = np.full(len(rows), -NEVER)
    for place in range(len(rows)):
        row = rows[place]
        for at in range(int(table[row, LEVELS])):
            slack_s = left_s[place] - rest_s(table[row], levels[row], at, now)
            found[place] = max(found[place], slack_s)
            if slack_s >= 0.0:
                break
    return found


@jit
def joined_s(row: Floats, levels: Floats, at: int, begin_s: float, has: float, now: float) -> float:
    """How long new workers take that are asked for at an instant; 0 when none are new."""
    if begin_s <= 0.0:
        return join_s(row, levels, at, now)
    found_s: float = levels[START, at] * (1.0 if levels[WIDTH, at] > has else 0.0)
    return found_s


@jit
def reformed(
    row: Floats,
    levels: Floats,
    formed: int,
    at: int,
    ready_s: float,
    at_s: float,
    left: float,
) -> tuple[float, float]:
    """Where a job re-forms once its new workers are up: when it goes on, with how many epochs left."""
    whole_s, wait_s = epoch_s(row, levels, formed), ready_s - at_s
    if wait_s > TINY_S and 0.0 < whole_s < NEVER:
        more = min(left, -(-(wait_s - TINY_S) // whole_s))
        at_s, left = at_s + more * whole_s, left - more
    if left > 0.0:
        at_s += levels[STOP, at]
    return at_s, left


@jit
def end_s(row: Floats, levels: Floats, now: float, from_s: Floats, level: Ints, many: int) -> float:
    """Seconds from now to the end of a job that has these levels at these times (`reserve._Walk`)."""
    left, formed, at_s = row[LEFT], NOBODY, 0.0
    if row[WORKERS]:
        formed, at_s = FORMED, boundary_s(row, levels, now)
        if not row[PARKED]:
            left -= 1.0
        if row[STOPPING]:
            formed, at_s = NOBODY, freed_s(row, levels, now)
    for step in range(many):
        begin_s, at = from_s[step], level[step]
        has = 0.0 if formed == NOBODY else levels[WIDTH, formed]
        new = 0.0 if at == NOBODY else levels[WIDTH, at]
        as_it_is = new == has and (begin_s > 0.0 or new == row[WORKERS])
        if as_it_is or left <= 0.0:
            continue
        if has and new:
            ready_s = begin_s + joined_s(row, levels, at, begin_s, has, now)
            at_s, left = reformed(row, levels, formed, at, ready_s, at_s, left)
        elif new:
            at_s = max(at_s, begin_s) + levels[START, at]
        formed = at
    if left <= 0.0:
        return at_s
    if formed == NOBODY:
        return NEVER
    found_s: float = at_s + left * epoch_s(row, levels, formed)
    return found_s
