# ruff: noqa: PLR0917 - loops that are compiled take arrays, by place
"""On which regions waiting jobs must sit that could go elsewhere: once they run they do not move.

By Hall's theorem (`regions`) whoever can leave a region does not weigh on it, as long as all fit at each
instant. That is enough only for who could move. So a job fits if its workers have seats that they
keep: what is free inside of a region all the time, and what is free outside of it all the time. And what
does not fit outside at the fullest moment sits inside from its first moment to its last.

These functions run as they stand, or compiled (`frame.compiled`).
"""

from math import floor

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import NOBODY, SIZE
from laxity_scheduler.promising.claimants import Claimant
from laxity_scheduler.promising.reserve import Profile, find_end, find_slot


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
