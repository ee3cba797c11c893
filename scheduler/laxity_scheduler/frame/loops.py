# ruff: noqa: PLR0917 - loops that are compiled take arrays, by place
"""How long jobs still take from their rows and levels: the functions of `kernels`, for all rows.

At one quantile. A row (F,) says where the job is, its levels (4, L + 3) what each width takes; what
they hold stands in `fields`. The last three levels are the widths that it has, that it formed at, and
that it was asked to have. Tables are nested lists where these functions run in CPython, which is fast
with plain numbers, and arrays where they are compiled (`frame.compiled`).
"""

from typing import Any, Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import (
    ANEW,
    ANYWHERE,
    ASKED,
    BEGUN_AT,
    CHANGED_AT,
    FORMED,
    HAS_FORMED,
    LATE_S,
    LEFT,
    LEVELS,
    OVERDUE,
    OWN,
    PARKED,
    RESUMED_AT,
    STOPPING,
    WIDTH,
    WORKERS,
)
from laxity_scheduler.frame.fields import NOBODY as NO_LEVEL
from laxity_scheduler.frame.kernels import (
    NOBODY,
    Levels,
    Work,
    boundary_s,
    change_width,
    course_end_s,
    initial_course,
    remaining_s,
    slack_s,
    time_to_free_s,
    width_of,
)
from laxity_scheduler.frame.kernels import least_in_time as least_level_in_time

NEVER: Final = np.inf
Row = Any  # the numbers of a row, (F,)
Table = Any  # rows, (n, F)
Depths = Any  # levels of rows, (n, KINDS, L + EXTRA)


def work_of(row: Row, levels: Levels) -> Work:
    own, formed = NOBODY, NOBODY
    if row[WORKERS] > 0.0:
        own, formed = width_of(levels, OWN), width_of(levels, FORMED)
    return Work(
        row[LEFT],
        row[ANEW],
        row[BEGUN_AT],
        row[RESUMED_AT],
        row[CHANGED_AT],
        row[HAS_FORMED] > 0.0,
        row[PARKED] > 0.0,
        row[STOPPING] > 0.0,
        row[LATE_S],
        levels[OVERDUE][0],
        row[ANYWHERE] > 0.0,
        own,
        formed,
    )


def rest_s(work: Work, levels: Levels, at: int, now: float) -> float:
    """Seconds from now to the end if it is to have this level from now on."""
    return remaining_s(work, width_of(levels, at), 0.0, now)


def end_s(work: Work, levels: Levels, now: float, from_s: Floats, level: Ints, many: int) -> float:
    """Seconds from now to the end of a job that has these levels at these times."""
    course = initial_course(work, now)
    for step in range(many):
        to = NOBODY if level[step] == NO_LEVEL else width_of(levels, level[step])
        course = change_width(work, course, from_s[step], to, now)
    return course_end_s(work, course)


def times_s(table: Table, levels: Depths, now: float) -> tuple[Floats, Floats, Floats]:
    """Of all rows: when it ends; when its epoch does, and when its GPUs are free if it is stopped.

    It ends so if nothing is decided; a queued one, if it is started now on its narrowest width.
    """
    ends, boundary, freed = np.zeros(len(table)), np.zeros(len(table)), np.zeros(len(table))
    for row in range(len(table)):
        work = work_of(table[row], levels[row])
        ends[row] = rest_s(work, levels[row], ASKED if table[row][WORKERS] else 0, now)
        if table[row][WORKERS]:
            boundary[row] = boundary_s(work, now)
            freed[row] = time_to_free_s(work, now)
    return ends, boundary, freed


def slacks_s(
    table: Table, levels: Depths, rows: Ints, left_s: Floats, now: float
) -> tuple[Floats, Ints]:
    """Of these rows: spare seconds on the least level in time, and which; else on the fastest one."""
    slack, level = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
    for place in range(len(rows)):
        row = rows[place]
        work = work_of(table[row], levels[row])
        slack[place], level[place] = slack_s(
            work, levels[row], int(table[row][LEVELS]), left_s[place], now
        )
    return slack, level


def least_in_time(
    table: Table, levels: Depths, rows: Ints, left_s: Floats, now: float
) -> tuple[Floats, Floats]:
    """Of these rows: the least width up to the present one that is in time (0: none), and its end."""
    width, end = np.zeros(len(rows)), np.empty(len(rows))
    for place in range(len(rows)):
        row = rows[place]
        work, level_count = work_of(table[row], levels[row]), int(table[row][LEVELS])
        level, end[place] = least_level_in_time(work, levels[row], level_count, left_s[place], now)
        if level >= 0:
            width[place] = levels[row][WIDTH][level]
    return width, end


def rests_s(
    table: Table, levels: Depths, rows: Ints, at: Ints, after_s: Floats, now: float
) -> Floats:
    """Of these rows: seconds to the end if each is to have one level `after_s` from now on."""
    seconds = np.empty(len(rows))
    for place in range(len(rows)):
        row = rows[place]
        to = width_of(levels[row], at[place])
        seconds[place] = remaining_s(work_of(table[row], levels[row]), to, after_s[place], now)
    return seconds


def by_level_s(table: Table, levels: Depths, rows: Ints, depth: int, now: float) -> Floats:
    """Of these rows: seconds to the end on each of `depth` levels; inf on those that one has not."""
    seconds = np.full((len(rows), depth), NEVER)
    for place in range(len(rows)):
        row = rows[place]
        work = work_of(table[row], levels[row])
        for level in range(int(table[row][LEVELS])):
            seconds[place, level] = rest_s(work, levels[row], level, now)
    return seconds


def finishes_s(
    table: Table, levels: Depths, rows: Ints, at: Ints, from_s: Floats, many: Ints, now: float
) -> Floats:
    """Of these rows: seconds to the end if each has some levels, one after the other, (n, K)."""
    seconds = np.empty(len(rows))
    for place in range(len(rows)):
        row = rows[place]
        work = work_of(table[row], levels[row])
        seconds[place] = end_s(work, levels[row], now, from_s[place], at[place], many[place])
    return seconds
