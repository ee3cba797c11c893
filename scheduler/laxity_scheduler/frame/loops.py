# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""How long jobs still take from their rows and levels: the functions of `kernels`, compiled, for all rows.

At one quantile. A row (F,) says where the job is, its levels (4, L + 3) what each width takes; what
they hold stands in `fields`. The last three levels are the widths that it has, that it formed at, and
that it was asked to have.
"""

from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame import kernels
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit, register_for_arrays, register_plain
from laxity_scheduler.frame.fields import (
    ASKED,
    BEGUN_AT,
    CHANGED_AT,
    EXTRA,
    FORMED,
    HAS_FORMED,
    LEFT,
    LEVELS,
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
from laxity_scheduler.frame.fields import NOBODY as NO_LEVEL
from laxity_scheduler.frame.kernels import NOBODY, Width, Work

NEVER: Final = np.inf


for kernel in (
    kernels.epoch_s,
    kernels.phi,
    kernels.start_left_s,
    kernels.boundary_s,
    kernels.freed_s,
    kernels.join_s,
    kernels.resumed_s,
    kernels.changed_s,
    kernels.remaining_s,
    kernels.least_in_time,
    kernels.slack_s,
    kernels.initial_course,
    kernels.change_width,
    kernels.course_end_s,
):
    register_plain(kernel)


def _width_of(levels: Floats, at: int) -> Width:
    return Width(levels[WIDTH, at], levels[TOTAL, at], levels[START, at], levels[STOP, at])


register_for_arrays(kernels.width_of, _width_of)


@jit
def work_of(row: Floats, levels: Floats) -> Work:
    own, formed = NOBODY, NOBODY
    if row[WORKERS] > 0.0:
        own, formed = kernels.width_of(levels, OWN), kernels.width_of(levels, FORMED)
    return Work(
        row[LEFT],
        row[BEGUN_AT],
        row[RESUMED_AT],
        row[CHANGED_AT],
        row[HAS_FORMED] > 0.0,
        row[PARKED] > 0.0,
        row[STOPPING] > 0.0,
        own,
        formed,
    )


@jit
def freed_s(row: Floats, levels: Floats, now: float) -> float:
    """How long until its GPUs are free, if it is (or was) asked to stop at its epoch's end."""
    return kernels.freed_s(work_of(row, levels), now)


@jit
def rest_s(row: Floats, levels: Floats, at: int, now: float) -> float:
    """Seconds from now to the end if it is to have this level from now on."""
    return kernels.remaining_s(work_of(row, levels), kernels.width_of(levels, at), 0.0, now)


@jit
def end_s(row: Floats, levels: Floats, now: float, from_s: Floats, level: Ints, many: int) -> float:
    """Seconds from now to the end of a job that has these levels at these times."""
    work = work_of(row, levels)
    course = kernels.initial_course(work, now)
    for step in range(many):
        to = NOBODY if level[step] == NO_LEVEL else kernels.width_of(levels, level[step])
        course = kernels.change_width(work, course, from_s[step], to, now)
    return kernels.course_end_s(work, course)


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
            work = work_of(table[row], levels[row])
            boundary[row] = kernels.boundary_s(work, now)
            freed[row] = kernels.freed_s(work, now)
    return ends, boundary, freed


@jit
def slacks_s(
    table: Floats, levels: Floats, rows: Ints, left_s: Floats, now: float
) -> tuple[Floats, Ints]:
    """Of these rows: spare seconds on the least level in time, and which; else on the fastest one."""
    slack, level = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
    for place in range(len(rows)):
        row = rows[place]
        work = work_of(table[row], levels[row])
        slack[place], level[place] = kernels.slack_s(
            work, levels[row], int(table[row, LEVELS]), left_s[place], now
        )
    return slack, level


@jit
def least_in_time(
    table: Floats, levels: Floats, rows: Ints, left_s: Floats, now: float
) -> tuple[Floats, Floats]:
    """Of these rows: the least width up to the present one that is in time (0: none), and its end."""
    width, end = np.zeros(len(rows)), np.empty(len(rows))
    for place in range(len(rows)):
        row = rows[place]
        work, many = work_of(table[row], levels[row]), int(table[row, LEVELS])
        at, end[place] = kernels.least_in_time(work, levels[row], many, left_s[place], now)
        if at >= 0:
            width[place] = levels[row, WIDTH, at]
    return width, end


@jit
def present_s(table: Floats, levels: Floats, rows: Ints, now: float) -> Floats:
    """Of these rows: seconds to the end at the width that each has."""
    found = np.empty(len(rows))
    for place in range(len(rows)):
        found[place] = rest_s(table[rows[place]], levels[rows[place]], OWN, now)
    return found


@jit
def by_level_s(table: Floats, levels: Floats, rows: Ints, now: float) -> Floats:
    """Of these rows: seconds to the end on each level; inf on those that one has not."""
    found = np.full((len(rows), levels.shape[2] - EXTRA), NEVER)
    for place in range(len(rows)):
        row = rows[place]
        for at in range(int(table[row, LEVELS])):
            found[place, at] = rest_s(table[row], levels[row], at, now)
    return found


@jit
def finishes_s(
    table: Floats, levels: Floats, rows: Ints, at: Ints, from_s: Floats, now: float
) -> Floats:
    """Of these rows: seconds to the end if each has one level from some time on."""
    found = np.empty(len(rows))
    for place in range(len(rows)):
        steps = slice(place, place + 1)
        found[place] = end_s(
            table[rows[place]], levels[rows[place]], now, from_s[steps], at[steps], 1
        )
    return found
