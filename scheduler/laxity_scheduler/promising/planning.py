# ruff: noqa: FBT001, PLR0917 - compiled loops take arrays, by place
"""Thousands of claims planned one after the other: `reserve.Planner` and `room.plan_one` as loops.

The same shares in the same floating-point operations. A share's steps are two arrays: when each
begins, and on which level (`fields.NOBODY`: no workers).
"""

from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.frame.fields import (
    CHANGED_AT,
    EXTRA,
    LEVELS,
    MEAN_EPOCH_S,
    NOBODY,
    OWN,
    RESUMED_AT,
    SIZE,
    STAYS,
    STOPPING,
    WIDTH,
    WORKERS,
)
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.loops import NEVER, end_s, freed_s, rest_s

MOST_EXTENSIONS: Final = 12  # as in `reserve`
IN_TIME, LATE, NONE = 0, 1, 2


class Free(NamedTuple):
    """GPUs that are free by slot, (S + 1,), the last of them all that comes after; edges (S + 2,)."""

    edges: Floats
    gpus: Floats


class How(NamedTuple):
    """At which instant it is planned, and by which rules (`claims.Terms`)."""

    now: float
    grows: bool
    stay: bool  # running jobs keep their width if they are in time with it
    settle_epochs: float


class Shares(NamedTuple):
    """n shares of up to K steps."""

    from_s: Floats  # (n, K)
    level: Ints  # (n, K)
    many: Ints  # (n,): steps
    finish_s: Floats  # (n,)
    found: Ints  # (n,): IN_TIME, LATE or NONE

    def of(self, ones: slice) -> "Shares":
        """Some of them; what is written to these is written to all."""
        numbers = self.level[ones], self.many[ones]
        return Shares(self.from_s[ones], *numbers, self.finish_s[ones], self.found[ones])


@jit
def slot_of(free: Free, at_s: float) -> int:
    """The slot that holds this instant."""
    found = int(np.searchsorted(free.edges, at_s + TINY_S, side="right")) - 1
    return min(max(found, 0), len(free.gpus) - 1)


@jit
def slot_after(free: Free, at_s: float) -> int:
    """One past the last slot that is touched before this instant."""
    return min(int(np.searchsorted(free.edges, at_s - TINY_S)), len(free.gpus))


@jit
def add(free: Free, until_s: float, gpus: float) -> None:
    """Change what is free from now until then; touched slots change whole."""
    last = len(free.gpus)
    if until_s != NEVER:
        last = min(slot_after(free, until_s), last - 1)
    for slot in range(slot_of(free, 0.0), last):
        free.gpus[slot] += gpus


@jit
def steps_of(
    row: Floats,
    levels: Floats,
    most: int,
    grows: bool,
    free: Free,
    end: int,
    from_s: Floats,
    level: Ints,
) -> int:
    """Widths by slot in a window that ends with the slot before `end`; how many, 0 if none fits."""
    many, size = 1, row[SIZE]
    from_s[0], level[0] = free.edges[0], NOBODY
    for at in range(0 if grows else most, most + 1):
        begins = end
        while begins > 0 and not (
            max(free.gpus[begins - 1], 0.0) / size + 1e-9 < levels[WIDTH, at]
        ):
            begins -= 1
        if begins >= end:
            break
        if from_s[many - 1] == free.edges[begins]:
            many -= 1
        from_s[many], level[many] = free.edges[begins], at
        many += 1
    return many if level[many - 1] != NOBODY else 0


@jit
def at_most(
    row: Floats,
    levels: Floats,
    most: int,
    due_s: float,
    how: How,
    free: Free,
    from_s: Floats,
    level: Ints,
) -> tuple[int, float]:
    """A share of at most this level: how many steps, 0 if it is not in time; and its finish."""
    ideal_s = rest_s(row, levels, most, how.now)
    if ideal_s > due_s + TINY_S or ideal_s == NEVER:
        return 0, NEVER
    slots = len(free.gpus)
    last = slots if due_s == NEVER else max(1, slot_after(free, due_s))
    end = min(last, max(1, slot_after(free, ideal_s)))
    for attempt in range(MOST_EXTENSIONS + 1):
        if attempt == MOST_EXTENSIONS:
            end = last
        many = steps_of(row, levels, most, how.grows, free, end, from_s, level)
        finish_s = end_s(row, levels, how.now, from_s, level, many) if many else NEVER
        need = slots if finish_s == NEVER else slot_after(free, finish_s)
        if finish_s <= due_s + TINY_S and finish_s < NEVER and need <= end:
            return many, finish_s
        if end >= last:
            return 0, NEVER
        end = min(last, max(end + 1, min(need, end + 1 + (last - end) // 4)))
    return 0, NEVER


@jit
def least(
    row: Floats, levels: Floats, due_s: float, how: How, free: Free, from_s: Floats, level: Ints
) -> tuple[int, float]:
    """The share of the smallest width in time."""
    for most in range(int(row[LEVELS])):
        many, finish_s = at_most(row, levels, most, due_s, how, free, from_s, level)
        if many:
            return many, finish_s
    return 0, NEVER


@jit
def earliest(
    row: Floats, levels: Floats, how: How, free: Free, from_s: Floats, level: Ints
) -> tuple[int, float]:
    """The share that ends soonest, of equals the narrowest."""
    best, best_s = 0, NEVER
    more_s, more = np.empty_like(from_s), np.empty_like(level)
    for most in range(int(row[LEVELS])):
        many, finish_s = at_most(row, levels, most, NEVER, how, free, more_s, more)
        if many and finish_s < best_s:
            best, best_s = many, finish_s
            from_s[:many], level[:many] = more_s[:many], more[:many]
    return best, best_s


@jit
def reserve(
    row: Floats, levels: Floats, free: Free, from_s: Floats, level: Ints, many: int, finish_s: float
) -> None:
    """Take a share's GPUs out."""
    for step in range(many):
        until_s = from_s[step + 1] if step + 1 < many else finish_s
        if level[step] == NOBODY or until_s <= from_s[step]:
            continue
        first, last = slot_of(free, from_s[step]), slot_after(free, until_s)
        gpus = levels[WIDTH, level[step]] * row[SIZE]
        for slot in range(first, min(last, len(free.gpus) - 1)):
            free.gpus[slot] -= gpus


@jit
def stays(row: Floats, levels: Floats, due_s: float, how: How, free: Free) -> float:
    """When it ends on the width that it has; -1 unless it is to stay so, in time and harming nobody."""
    if not row[WORKERS] or row[STOPPING]:
        return -1.0
    if not (how.stay or row[STAYS] or just_resized(row, how)):
        return -1.0
    from_s, level = np.zeros(1), np.full(1, OWN)
    finish_s = end_s(row, levels, how.now, from_s, level, 1)
    if finish_s > due_s + TINY_S:
        return -1.0
    gpus = row[WORKERS] * row[SIZE]
    for slot in range(min(slot_after(free, finish_s), len(free.gpus) - 1)):
        if not free.gpus[slot] >= gpus:
            return -1.0
    return finish_s


@jit
def just_resized(row: Floats, how: How) -> bool:
    """Whether its width has changed since it started, less than some epochs ago."""
    changed_at = row[CHANGED_AT]
    resumed_at = 0.0 if np.isnan(row[RESUMED_AT]) else row[RESUMED_AT]
    if np.isnan(changed_at) or changed_at <= resumed_at:
        return False
    return bool(how.now < changed_at + how.settle_epochs * row[MEAN_EPOCH_S])


@jit
def plan_one(
    row: Floats, levels: Floats, due_s: float, how: How, free: Free, from_s: Floats, level: Ints
) -> tuple[int, float, int]:
    """Plan a claim and take its share out: its steps, its finish, and whether it is in time."""
    staying = 0.0 if row[STOPPING] else row[WORKERS]
    free_s = freed_s(row, levels, how.now) if staying else 0.0
    if staying:
        add(free, free_s, staying * row[SIZE])
    many, finish_s, found = 1, stays(row, levels, due_s, how, free), IN_TIME
    if finish_s >= 0.0:
        from_s[0], level[0] = 0.0, OWN
    else:
        many, finish_s = least(row, levels, due_s, how, free, from_s, level)
    if not many:
        found = LATE
        many, finish_s = earliest(row, levels, how, free, from_s, level)
    surplus = staying
    if many:
        reserve(row, levels, free, from_s, level, many, finish_s)
        surplus -= 0.0 if level[0] == NOBODY else levels[WIDTH, level[0]]
    else:
        found = NONE
    if surplus > 0.0:
        add(free, free_s, -surplus * row[SIZE])
    return many, finish_s, found


@jit
def plan_all(
    table: Floats, levels: Floats, order: Ints, due_s: Floats, how: How, free: Free, shares: Shares
) -> None:
    """Plan claims one after the other: `order` (m,) says which rows, `due_s` (m,) until when."""
    for place in range(len(order)):
        one = order[place]
        from_s, level = shares.from_s[place], shares.level[place]
        many, finish_s, found = plan_one(
            table[one], levels[one], due_s[place], how, free, from_s, level
        )
        shares.many[place], shares.finish_s[place], shares.found[place] = many, finish_s, found


@jit
def admit_all(
    table: Floats, levels: Floats, order: Ints, due_s: Floats, how: How, free: Free, shares: Shares
) -> int:
    """Take the shares of newcomers that wait out, one after the other, to the first that is late.

    How many are in time.
    """
    for place in range(len(order)):
        one = order[place]
        from_s, level = shares.from_s[place], shares.level[place]
        many, finish_s = least(table[one], levels[one], due_s[place], how, free, from_s, level)
        if not many:
            return place
        reserve(table[one], levels[one], free, from_s, level, many, finish_s)
        shares.many[place], shares.finish_s[place], shares.found[place] = many, finish_s, IN_TIME
    return len(order)


def room_for(many: int, levels: int) -> Shares:
    """Arrays for so many shares on so many levels."""
    steps = max(1, levels - EXTRA) + 1
    return Shares(
        np.zeros((many, steps)),
        np.full((many, steps), NOBODY, dtype=np.int64),
        np.zeros(many, dtype=np.int64),
        np.full(many, NEVER),
        np.full(many, NONE, dtype=np.int64),
    )
