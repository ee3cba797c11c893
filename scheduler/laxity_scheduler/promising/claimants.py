# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""What the loops that plan claims work on: who claims, by which rules, the shares and their seats.

By Hall's theorem (`regions`) whoever can leave a region does not weigh on it, as long as all fit at each
instant. That is enough only for who could move, and workers that run do not. So a job fits if its
workers have seats that they keep: what is free inside of a region all the time, and what is free
outside of it all the time. And what does not fit outside at the fullest moment sits inside from its
first moment to its last.

These functions run as they stand, or compiled (`frame.compiled`).
"""

from math import floor
from typing import Any, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import EXTRA, NOBODY, SIZE
from laxity_scheduler.frame.kernels import Work
from laxity_scheduler.frame.loops import NEVER
from laxity_scheduler.promising.reserve import Profile, find_end, find_slot

IN_TIME, LATE, NONE = 0, 1, 2
BOUNDED, FREE = -1, -2  # whether a part bounds a job; else the number of a part


class How(NamedTuple):
    """At which instant it is planned, and by which rules."""

    now: float
    grows: bool
    stay: bool  # running jobs keep their width if they are in time with it
    drops: bool  # who would be late has no share


class Claimant(NamedTuple):
    """One job: its row, and what each level takes and needs, of P parts and K levels."""

    row: Any  # (F,): numbers, nested as `loops` has them
    levels: Any  # (KINDS, K)
    work: Work
    needs: Floats  # (P, K): GPUs
    bound: Ints  # (P,): whether this part bounds it (`regions.weigh`)


class Claimants(NamedTuple):
    """n jobs."""

    rows: Any  # (n, F)
    levels: Any  # (n, KINDS, K)
    needs: Floats  # (n, P, K)
    bound: Ints  # (n, P)


class Shares(NamedTuple):
    """n shares of up to K steps."""

    from_s: Floats  # (n, K)
    level: Ints  # (n, K)
    many: Ints  # (n,): steps
    finish_s: Floats  # (n,)
    found: Ints  # (n,): IN_TIME, LATE or NONE
    seats: Floats  # (n, P): GPUs of regions that it could leave, and on which it will sit

    def of(self, places: slice | Ints) -> "Shares":
        """Some of them; what is written to a slice is written to all."""
        return Shares._make([column[places] for column in self])


class Held(NamedTuple):
    """What is held for the jobs of m claims until they start."""

    until_s: Floats  # (m,): seconds from now; 0 where nothing is
    gpus: Floats  # (m, P)


class Full(NamedTuple):
    """From which slot on there is room for a level up to slot `known`, as far as somebody looked."""

    known: Ints  # (K,): 0 where nobody did
    begins: Ints  # (K,)


def nothing_known(levels: int) -> Full:
    return Full(np.zeros(levels, dtype=np.int64), np.zeros(levels, dtype=np.int64))


def forget(full: Full) -> None:
    for row in range(len(full.known)):
        full.known[row] = full.begins[row] = 0


def claimant_at(jobs: Claimants, row: int, work: Work) -> Claimant:
    return Claimant(jobs.rows[row], jobs.levels[row], work, jobs.needs[row], jobs.bound[row])


def hold_nothing(many: int, parts: int) -> Held:
    """Nothing is held for so many jobs, on so many parts of the cluster."""
    return Held(np.zeros(many), np.zeros((many, parts)))


def room_for(many: int, levels: int, parts: int) -> Shares:
    """Arrays for so many shares on so many levels and parts of the cluster."""
    steps = max(1, levels - EXTRA) + 1
    return Shares(
        np.zeros((many, steps)),
        np.full((many, steps), NOBODY, dtype=np.int64),
        np.zeros(many, dtype=np.int64),
        np.full(many, NEVER),
        np.full(many, NONE, dtype=np.int64),
        np.zeros((many, parts)),
    )


def count_seats(gpus: float, size: float) -> int:
    """Workers of that size which fit."""
    return max(0, floor((gpus + 1e-9) / size))


def find_seats(
    inside: Floats, around: Floats, first: int, end: int, gpus: float, size: float
) -> int:
    """One past the last of these slots too full for so many GPUs to stay from it on; 0 if none is.

    What is free inside of a region and around it: the region with all that the job may use besides.
    """
    if end <= first:
        return 0
    outside = around[first:end] - inside[first:end]
    seats = count_seats(inside[first:end].min(), size) + count_seats(outside.min(), size)
    if seats * size >= gpus:
        return 0
    least_inside, least_outside = np.inf, np.inf
    for slot in range(end - 1, first - 1, -1):
        least_inside = min(least_inside, inside[slot])
        least_outside = min(least_outside, around[slot] - inside[slot])
        if (
            min(least_inside, least_outside) < gpus
            and (count_seats(least_inside, size) + count_seats(least_outside, size)) * size < gpus
        ):
            return slot + 1
    return 0


def count_inside(
    inside: Floats, around: Floats, first: int, end: int, gpus: float, size: float
) -> float:
    """GPUs of so many that must be of a region, as they do not fit outside of it in all these slots."""
    if end <= first:
        return 0.0
    outside = (around[first:end] - inside[first:end]).min()
    return max(0.0, gpus - count_seats(outside, size) * size)


def find_its_seats(
    job: Claimant,
    profile: Profile,
    from_s: Floats,
    level: Ints,
    many: int,
    finish_s: float,
    seats: Floats,
) -> None:
    """GPUs of the regions (P,) on which a share's workers sit, since they do not fit elsewhere.

    Beside those that it awaits there.
    """
    seats[:] = 0.0
    end = min(find_end(profile, finish_s), profile.parts.shape[1] - 1)
    for part in range(1, len(profile.parts)):
        if job.bound[part] < 0:
            continue
        inside, around = profile.parts[part], profile.parts[job.bound[part]]
        for step in range(many):
            if level[step] != NOBODY:
                first, gpus = find_slot(profile, from_s[step]), job.needs[0, level[step]]
                more = count_inside(inside, around, first, end, gpus, job.row[SIZE])
                seats[part] = max(seats[part], more - job.needs[part, level[step]])
