# ruff: noqa: FBT001, PLR0917 - loops that are compiled take arrays, by place
"""Claims planned one after the other on a profile: each the least share with which it is in time.

The least share (algorithms.md 7.6, ascending): the smallest width with which the free slots before
the deadline hold the job. Our reading of it differs in one thing: a plan starts once and only ever
grows, because each stop and each restart costs what a slot of GPU time does not show. So a width
begins in the slot after the last one that is too full for it, within the window that is looked at,
and the window is widened until the plan ends within it.

These functions run as they stand, or compiled where there is much to plan (`frame.compiled`). A
share's steps are two arrays: when each begins, and on which level (`fields.NOBODY`: no workers).
"""

from typing import Any, Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import (
    CHANGED_AT,
    LEVELS,
    MEAN_EPOCH_S,
    NOBODY,
    OWN,
    RESUMED_AT,
    SIZE,
    STAYS,
    STOPPING,
    WORKERS,
)
from laxity_scheduler.frame.kernels import TINY_S, time_to_free_s
from laxity_scheduler.frame.loops import NEVER, end_s, rest_s, work_of
from laxity_scheduler.promising.claimants import (
    BOUNDED,
    IN_TIME,
    LATE,
    NONE,
    Claimant,
    Claimants,
    Full,
    Held,
    How,
    Shares,
    claimant_at,
    find_its_seats,
    find_seats,
    forget,
)
from laxity_scheduler.promising.reserve import Profile, add_gpus, find_end, take_gpus

SETTLE_EPOCHS: Final = 2.0  # so long plans leave a resized job its width, if that is in time
MOST_EXTENSIONS: Final = 12  # how often a plan's window is widened before the whole one is taken


def find_begin(job: Claimant, at: int, profile: Profile, full: Full, end: int) -> int:
    """The first slot from which on, up to `end`, there is room for a level."""
    looked_to, begins = full.known[at], full.begins[at]
    if end < looked_to:
        if begins <= end:
            return int(begins)
        looked_to = begins = 0
    for part in range(len(profile.parts)):
        gpus = job.needs[part, at]
        if part == 0 or (job.bound[part] == BOUNDED and gpus > 0.0):
            begins = max(begins, find_room(profile.parts[part], looked_to, end, gpus))
    for part in range(1, len(profile.parts)):
        if job.bound[part] >= 0 and job.needs[part, at] < job.needs[0, at]:
            around, size = profile.parts[job.bound[part]], job.row[SIZE]
            seat = find_seats(profile.parts[part], around, begins, end, job.needs[0, at], size)
            begins = max(begins, seat)
    full.known[at], full.begins[at] = end, begins
    return int(begins)


def find_room(free: Floats, first: int, end: int, gpus: float) -> int:
    """One past the last of these slots that is too full for so many GPUs; 0 if none is."""
    if end <= first:
        return 0
    too_full = free[first:end][::-1] + 1e-9 < gpus
    back = int(too_full.argmax())
    return end - back if too_full[back] else 0


def find_steps(
    job: Claimant,
    most: int,
    grows: bool,
    profile: Profile,
    full: Full,
    end: int,
    from_s: Floats,
    level: Ints,
) -> int:
    """Levels by slot in a window that ends with the slot before `end`; how many, 0 if none fits."""
    count = 1
    from_s[0], level[0] = profile.edges[0], NOBODY
    for step_level in range(0 if grows else most, most + 1):
        begins = find_begin(job, step_level, profile, full, end)
        if begins >= end:
            break
        if from_s[count - 1] == profile.edges[begins]:
            count -= 1
        from_s[count], level[count] = profile.edges[begins], step_level
        count += 1
    return count if level[count - 1] != NOBODY else 0


def plan_at_most(
    job: Claimant,
    most: int,
    due_s: float,
    how: How,
    profile: Profile,
    full: Full,
    from_s: Floats,
    level: Ints,
) -> tuple[int, float]:
    """A share of at most this level: how many steps, 0 if it is not in time; and its finish."""
    ideal_s = rest_s(job.work, job.levels, most, how.now)
    if ideal_s > due_s + TINY_S or ideal_s == NEVER:
        return 0, NEVER
    slots = profile.parts.shape[1]
    last = slots if due_s == NEVER else max(1, find_end(profile, due_s))
    end = min(last, max(1, find_end(profile, ideal_s)))
    for attempt in range(MOST_EXTENSIONS + 1):
        if attempt == MOST_EXTENSIONS:
            end = last
        count = find_steps(job, most, how.grows, profile, full, end, from_s, level)
        if not count:  # it begins behind this window
            from_s[1], level[1] = profile.edges[end], most
        finish_s = end_s(job.work, job.levels, how.now, from_s, level, count or 2)
        need = slots if not count or finish_s == NEVER else find_end(profile, finish_s)
        in_time = finish_s <= due_s + TINY_S
        if count and in_time and finish_s < NEVER and need <= end:
            return count, finish_s
        if end >= last or not (in_time or how.grows):  # in a wider window one level begins later
            return 0, NEVER
        end = min(last, max(end + 1, min(need, end + 1 + (last - end) // 4)))
    return 0, NEVER


def plan_least(
    job: Claimant, due_s: float, how: How, profile: Profile, full: Full, from_s: Floats, level: Ints
) -> tuple[int, float]:
    """The share of the smallest width in time: how many steps, 0 if there is none; its finish."""
    forget(full)
    for most in range(int(job.row[LEVELS])):
        count, finish_s = plan_at_most(job, most, due_s, how, profile, full, from_s, level)
        if count:
            return count, finish_s
    return 0, NEVER


def plan_earliest(
    job: Claimant, due_s: float, how: How, profile: Profile, full: Full, from_s: Floats, level: Ints
) -> tuple[int, float]:
    """The share in time that ends soonest, of equals the narrowest: how many steps, and its finish."""
    best, best_s = 0, NEVER
    forget(full)
    more_s, more = np.empty_like(from_s), np.empty_like(level)
    for most in range(int(job.row[LEVELS])):
        count, finish_s = plan_at_most(job, most, due_s, how, profile, full, more_s, more)
        if count and finish_s < best_s:
            best, best_s = count, finish_s
            from_s[:count], level[:count] = more_s[:count], more[:count]
    return best, best_s


def reserve_steps(
    job: Claimant,
    profile: Profile,
    from_s: Floats,
    level: Ints,
    many: int,
    finish_s: float,
    seats: Floats,
) -> None:
    """Take a share's GPUs out, and its seats, which are found."""
    if len(seats) > 1:
        find_its_seats(job, profile, from_s, level, many, finish_s, seats)
    for step in range(many):
        until_s = from_s[step + 1] if step + 1 < many else finish_s
        if level[step] != NOBODY and until_s > from_s[step]:
            take_gpus(profile, from_s[step], until_s, job.needs, level[step])
            if len(seats) > 1 and seats.any():
                gpus = np.minimum(seats, job.needs[0, level[step]] - job.needs[:, level[step]])
                take_gpus(profile, from_s[step], until_s, gpus.reshape(-1, 1), 0)


def keep_width(job: Claimant, due_s: float, how: How, profile: Profile) -> float:
    """When a running job ends on the width that it has; -1 unless it is to stay so, harming nobody.

    It is to stay so if plans are to leave running jobs alone, if it cannot be stopped, and if its
    width has changed lately (algorithms.md 3.5, 3.7): else donors widen one another in turn.
    """
    if not (how.stay or job.row[STAYS] or is_just_resized(job.row, how)):
        return -1.0
    finish_s = end_s(job.work, job.levels, how.now, np.zeros(1), np.full(1, OWN), 1)
    if finish_s > due_s + TINY_S:
        return -1.0
    end = min(find_end(profile, finish_s), profile.parts.shape[1] - 1)
    for part in range(len(profile.parts)):
        gpus = job.needs[part, OWN]
        if part and (job.bound[part] != BOUNDED or gpus == 0.0):
            continue
        if not (profile.parts[part, :end] >= gpus).all():
            return -1.0
    return finish_s


def is_just_resized(row: Any, how: How) -> bool:
    """Whether its width has changed since it started, less than some epochs ago."""
    changed_at = row[CHANGED_AT]
    resumed_at = 0.0 if np.isnan(row[RESUMED_AT]) else row[RESUMED_AT]
    if np.isnan(changed_at) or changed_at <= resumed_at:
        return False
    return bool(how.now < changed_at + SETTLE_EPOCHS * row[MEAN_EPOCH_S])


def plan_claim(
    job: Claimant,
    due_s: float,
    how: How,
    profile: Profile,
    full: Full,
    from_s: Floats,
    level: Ints,
    seats: Floats,
) -> tuple[int, float, int]:
    """Plan a claim and take its share out: its steps, its finish, and whether it is in time.

    What a running one holds until its epoch's end is its own.
    """
    holds = job.row[WORKERS] > 0.0 and not job.row[STOPPING]
    count, finish_s, outcome = 1, -1.0, IN_TIME
    if holds:
        give_own(job, how, profile)
        finish_s = keep_width(job, due_s, how, profile)
    if finish_s >= 0.0:
        from_s[0], level[0] = 0.0, OWN
    else:
        count, finish_s = plan_least(job, due_s, how, profile, full, from_s, level)
    if not count and not how.drops:
        outcome = LATE
        count, finish_s = plan_earliest(job, NEVER, how, profile, full, from_s, level)
    if count:
        reserve_steps(job, profile, from_s, level, count, finish_s, seats)
    else:
        outcome = NONE
    if holds:
        take_own(job, level[0] if count else NOBODY, how, profile)
    return count, finish_s, outcome


def give_own(job: Claimant, how: How, profile: Profile) -> None:
    """What a running job holds until its epoch's end is free for it."""
    add_gpus(profile, 0.0, time_to_free_s(job.work, how.now), job.needs[:, OWN])


def take_own(job: Claimant, at_first: int, how: How, profile: Profile) -> None:
    """What it holds beyond the level that it has first is no longer free."""
    own = job.needs[:, OWN]
    first_needs = np.zeros(len(own)) if at_first == NOBODY else job.needs[:, at_first]
    if own[0] > first_needs[0]:
        add_gpus(profile, 0.0, time_to_free_s(job.work, how.now), first_needs - own)


def plan_claims(
    jobs: Claimants,
    places: Ints,
    due_s: Floats,
    held: Held,
    how: How,
    profile: Profile,
    full: Full,
    shares: Shares,
) -> None:
    """Plan claims one after the other: `places` (m,) says of which jobs, `due_s` (m,) until when.

    GPUs that are held for a job are nobody else's until it is planned to start.
    """
    for place in range(len(places)):
        row, from_s, level = places[place], shares.from_s[place], shares.level[place]
        work = work_of(jobs.rows[row], jobs.levels[row])
        job = claimant_at(jobs, row, work)
        count, finish_s, outcome = plan_claim(
            job, due_s[place], how, profile, full, from_s, level, shares.seats[place]
        )
        shares.many[place], shares.finish_s[place], shares.found[place] = count, finish_s, outcome
        if held.until_s[place] > 0.0:
            starts_s = find_start(from_s, level, count)
            take_held(profile, min(held.until_s[place], starts_s), held.gpus[place])


def take_held(profile: Profile, until_s: float, gpus: Floats) -> None:
    """Less is free of each part, (P,), until then."""
    take_gpus(profile, 0.0, until_s, gpus.reshape(-1, 1), 0)


def find_start(from_s: Floats, level: Ints, many: int) -> float:
    """When a share's first workers start; NEVER without any."""
    for step in range(many):
        if level[step] != NOBODY:
            return float(from_s[step])
    return NEVER


def plan_newcomers(
    jobs: Claimants,
    places: Ints,
    due_s: Floats,
    how: How,
    profile: Profile,
    full: Full,
    shares: Shares,
) -> int:
    """Take the shares of newcomers that wait out, one after the other, to the first that is late.

    How many are in time.
    """
    for place in range(len(places)):
        row, from_s, level = places[place], shares.from_s[place], shares.level[place]
        work = work_of(jobs.rows[row], jobs.levels[row])
        job = claimant_at(jobs, row, work)
        count, finish_s = plan_least(job, due_s[place], how, profile, full, from_s, level)
        if not count:
            return place
        reserve_steps(job, profile, from_s, level, count, finish_s, shares.seats[place])
        shares.many[place], shares.finish_s[place], shares.found[place] = count, finish_s, IN_TIME
    return len(places)
