"""How long one job still takes from an instant on, at one quantile: the only place where that is said.

The predictor answers for whole epochs. What a job still needs *now* is that, less what of the running
epoch is done, plus what starting or re-forming costs:

    remaining(w) = total(w) (1 - phi / n)          running at w; n epochs left, phi of the first done
                 + start(w)                        when it must be started first
    remaining(w) = until the boundary where the new width forms, at the present one
                 + stop(w) + total(w) left / n                        running at another width

phi is the elapsed share of the running epoch at the same quantile, at most 0.99: so a finish that is
predicted at P90 does not move while an epoch goes as predicted. A checkpoint's writing and reading is
what re-forming costs as well.

These are plain functions of plain numbers: Python calls them for one row, `loops` for all rows, where
these are many as machine code.
"""

from math import inf, isnan
from typing import Any, Final, NamedTuple

from laxity_scheduler.frame.fields import START, STOP, TOTAL, WIDTH

Levels = Any  # what each width takes, (KINDS, L): nested sequences or, for machine code, an array
TINY_S: Final = 1e-6
MOST_OF_AN_EPOCH: Final = 0.99


class Width(NamedTuple):
    """What so many workers take, in seconds."""

    workers: float
    total_s: float  # the whole epochs that are left
    start_s: float
    stop_s: float  # checkpoint and stop, once the epoch has ended


class Work(NamedTuple):
    """One job as its row has it. Instants that there are not are no numbers."""

    left: float  # epochs, the running one among them
    anew: float  # that it would train after a stop, if it holds no state; else 0
    begun_at: float  # the running epoch
    resumed_at: float
    changed_at: float  # its width
    has_formed: bool
    parked: bool  # at an epoch's end
    stopping: bool  # told to, or parked
    own: Width  # of the workers that it has
    formed: Width  # at which it trains, or will


class Course(NamedTuple):
    """A job on its way through a plan: at which epoch's end it is, with how many epochs left."""

    at_s: float  # from now
    left: float
    formed: Width


NOBODY: Final = Width(0.0, inf, inf, inf)


def epoch_s(work: Work, width: Width) -> float:
    return width.total_s / max(1.0, work.left)


def phi(work: Work, now: float) -> float:
    """The share of its running epoch that is done; negative while it re-forms for it."""
    if isnan(work.begun_at) or work.parked or not work.own.workers:
        return 0.0
    whole_s = epoch_s(work, work.formed)
    if not 0.0 < whole_s < inf:
        return 0.0
    return min(MOST_OF_AN_EPOCH, max(-1.0, (now - work.begun_at) / whole_s))


def start_left_s(work: Work, now: float) -> float:
    """How long until a started job does its first useful step; 0 once it trains."""
    if not work.own.workers or work.has_formed or not isnan(work.begun_at):
        return 0.0
    started_at = now if isnan(work.resumed_at) else work.resumed_at
    cost_s = work.own.start_s
    return min(cost_s, max(0.0, started_at + cost_s - now))


def boundary_s(work: Work, now: float) -> float:
    """How long until its running epoch ends; 0 if it is parked at an epoch's end."""
    if work.parked:
        return 0.0
    return start_left_s(work, now) + (1.0 - phi(work, now)) * epoch_s(work, work.formed)


def time_to_free_s(work: Work, now: float) -> float:
    """How long until its GPUs are free, if it is (or was) asked to stop at its epoch's end."""
    return boundary_s(work, now) + work.own.stop_s


def join_s(work: Work, to: Width, now: float) -> float:
    """How long until new workers could join; 0 when none are new."""
    has = work.own.workers
    if to.workers < has or (to.workers == has and isnan(work.changed_at)):
        return 0.0
    if to.workers > has:
        return to.start_s
    return min(to.start_s, max(0.0, work.changed_at + to.start_s - now))


def remaining_s(work: Work, to: Width, after_s: float, now: float) -> float:
    """Seconds from now to the end if it is to have this width `after_s` from now on.

    A queued job starts then. A running one goes on at its present width until the first epoch's end
    at which the new one can form; no sooner ends are lost, none is skipped.
    """
    if not work.left:
        return 0.0
    if inf in (to.total_s, after_s):
        return inf
    if not work.own.workers:
        return after_s + to.start_s + to.total_s
    if work.stopping:
        return finish_after_restart_s(work, to, after_s, now)
    if to.workers == work.formed.workers and to.workers == work.own.workers:
        return start_left_s(work, now) + to.total_s * (1.0 - phi(work, now) / work.left)
    return finish_after_change_s(work, to, after_s, now)


def left_after_stop(work: Work) -> float:
    """Epochs that are left once it is stopped at its epoch's end."""
    left = work.left if work.parked else work.left - 1.0
    return max(left, work.anew) if left > 0.0 else 0.0


def finish_after_restart_s(work: Work, to: Width, after_s: float, now: float) -> float:
    """Stopped at its epoch's end, then started again at once."""
    left = left_after_stop(work)
    free_s = time_to_free_s(work, now)
    if left <= 0.0:
        return free_s
    return max(free_s, after_s) + (to.start_s + left * epoch_s(work, to))


def finish_after_change_s(work: Work, to: Width, after_s: float, now: float) -> float:
    """Running at one width, forming at another at the first epoch's end that allows it."""
    whole_s, ready_s = epoch_s(work, work.formed), after_s + join_s(work, to, now)
    end_s, done = boundary_s(work, now), 1.0
    while end_s < ready_s - TINY_S and done < work.left and whole_s > 0.0:
        more = min(work.left - done, max(1.0, -(-(ready_s - TINY_S - end_s) // whole_s)))
        end_s, done = end_s + more * whole_s, done + more
    if done >= work.left:
        return end_s
    if work.anew > 0.0:
        return end_s + to.start_s + work.anew * epoch_s(work, to)
    return end_s + to.stop_s + (work.left - done) * epoch_s(work, to)


def width_of(levels: Levels, at: int) -> Width:
    """One of a job's widths."""
    return Width(levels[WIDTH][at], levels[TOTAL][at], levels[START][at], levels[STOP][at])


def least_in_time(
    work: Work, levels: Levels, many: int, left_s: float, now: float
) -> tuple[int, float]:
    """The least of so many levels, up to the present width, that ends in `left_s`; and when. -1: none."""
    for level in range(many):
        width = width_of(levels, level)
        if width.workers > work.own.workers:
            break
        end_s = remaining_s(work, width, 0.0, now)
        if end_s <= left_s and end_s < inf:
            return level, end_s
    return -1, inf


def slack_s(work: Work, levels: Levels, many: int, left_s: float, now: float) -> tuple[float, int]:
    """Spare seconds on the least of so many levels that is in time; negative: on the fastest one."""
    best_s, best = -inf, 0
    for level in range(many):
        spare_s = left_s - remaining_s(work, width_of(levels, level), 0.0, now)
        if spare_s >= 0.0:
            return spare_s, level
        if spare_s > best_s:
            best_s, best = spare_s, level
    return best_s, best


def initial_course(work: Work, now: float) -> Course:
    """Where a job is when its next epoch may be another: at the present one's end."""
    if not work.own.workers:
        return Course(0.0, work.left, NOBODY)
    if work.stopping:
        return Course(time_to_free_s(work, now), left_after_stop(work), NOBODY)
    left = work.left if work.parked else work.left - 1.0
    return Course(boundary_s(work, now), left, work.formed)


def change_width(work: Work, course: Course, begin_s: float, to: Width, now: float) -> Course:
    """It is to have this width from `begin_s` on: widths change at epochs' ends, with new workers up."""
    has = course.formed.workers
    as_it_is = to.workers == has and (begin_s > 0.0 or to.workers == work.own.workers)
    if as_it_is or course.left <= 0.0:
        return course
    if not to.workers:
        return Course(course.at_s, max(course.left, work.anew), to)
    if not has:
        return Course(max(course.at_s, begin_s) + to.start_s, course.left, to)
    if begin_s <= 0.0:
        joined_s = join_s(work, to, now)
    else:
        joined_s = to.start_s * (1.0 if to.workers > has else 0.0)
    at_s, left, whole_s = course.at_s, course.left, epoch_s(work, course.formed)
    wait_s = begin_s + joined_s - at_s
    if wait_s > TINY_S and 0.0 < whole_s < inf:
        more = min(left, -(-(wait_s - TINY_S) // whole_s))
        at_s, left = at_s + more * whole_s, left - more
    if left > 0.0 and work.anew > 0.0:
        return Course(at_s + to.start_s, work.anew, to)
    return Course(at_s + to.stop_s if left > 0.0 else at_s, left, to)


def course_end_s(work: Work, course: Course) -> float:
    """Seconds from now to the end of a job that goes on as it does."""
    if course.left <= 0.0:
        return course.at_s
    if not course.formed.workers:
        return inf
    return course.at_s + course.left * epoch_s(work, course.formed)
