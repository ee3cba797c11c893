"""How long one job still takes from an instant on, at one quantile: the only place where that is said.

The predictor answers for the units that are left and for what comes after the last of them. A run is
start | unit 1 .. unit N | finishing, and what a job still needs *now* is

    remaining(w) = total(w) - part(w) + part_left          running at w
                 + start(w)                                when it must be started first
    remaining(w) = until the boundary where the new width forms, at the present one
                 + stop(w) + the units that are left then  running at another width

`part` is what the part in flight (start, unit or finishing) takes. Given that it has lasted for `age`:

    part_left = max(part - age, (late - age) / 2, late / 100 + overdue (age - late)+)

So a finish that is predicted at P90 does not move while a unit goes as predicted, and a part that
is past its own P90 (`late`) has the more left, the longer it lasts: `overdue` times that, by
quantile. It is never over before it is. A checkpoint's writing and reading is what re-forming costs.

These are plain functions of plain numbers: Python calls them for one row, `loops` for all rows, where
these are many as machine code.
"""

from math import inf, isnan
from typing import Any, Final, NamedTuple

from laxity_scheduler.frame.fields import END, START, STOP, TOTAL, UNIT, WIDTH

Levels = Any  # what each width takes, (KINDS, L): nested sequences or, for machine code, an array
TINY_S: Final = 1e-6
LEAST_SHARE: Final = 0.01  # of its P90 that is left of any part in flight


class Width(NamedTuple):
    """What so many workers take, in seconds."""

    workers: float
    total_s: float  # the whole epochs that are left, and finishing
    start_s: float
    stop_s: float  # checkpoint and stop, once the epoch has ended
    unit_s: float  # the epoch that runs, or the next one
    end_s: float  # finishing: from the last epoch to the end


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
    late_s: float  # P90 of the part in flight
    overdue: float  # how many times what a part is beyond that is still to come
    anywhere: bool  # told to stop, it does inside its epoch, which it goes on with later
    own: Width  # of the workers that it has
    formed: Width  # at which it trains, or will


class Course(NamedTuple):
    """A job on its way through a plan: at which epoch's end it is, with how many epochs left."""

    at_s: float  # from now
    left: float
    formed: Width


NOBODY: Final = Width(0.0, inf, inf, inf, inf, 0.0)


def mean_unit_s(work: Work, width: Width) -> float:
    """The mean of the epochs that are left."""
    return (width.total_s - width.end_s) / max(1.0, work.left)


def later_s(work: Work, width: Width) -> float:
    """The mean of those after the one that runs."""
    if work.left <= 1.0 or width.total_s == inf:
        return width.unit_s
    return (width.total_s - width.unit_s - width.end_s) / (work.left - 1.0)


def tail_s(work: Work, width: Width, left: float) -> float:
    """The last so many epochs and finishing; all of them anew where they are more than are left."""
    if width.total_s == inf:
        return inf
    if left >= work.left:
        return left * mean_unit_s(work, width) + width.end_s
    return left * later_s(work, width) + width.end_s


def part_left_s(work: Work, part_s: float, age_s: float) -> float:
    """What is left of the part in flight, which has lasted so long and usually takes `part_s`."""
    late_s = max(work.late_s, part_s) if work.late_s < inf else part_s
    beyond_s = LEAST_SHARE * late_s + work.overdue * max(0.0, age_s - late_s)
    return max(part_s - age_s, (late_s - age_s) / 2.0, beyond_s)


def phi(work: Work, now: float) -> float:
    """The share of its running epoch that is done; negative while it re-forms for it."""
    unit_s = work.formed.unit_s
    if isnan(work.begun_at) or work.parked or not work.own.workers or not 0.0 < unit_s < inf:
        return 0.0
    return min(1.0 - LEAST_SHARE, max(-1.0, (now - work.begun_at) / unit_s))


def start_left_s(work: Work, now: float) -> float:
    """How long until a started job does its first useful step; 0 once it trains."""
    if not work.own.workers or work.has_formed or not isnan(work.begun_at):
        return 0.0
    started_at = now if isnan(work.resumed_at) else work.resumed_at
    return part_left_s(work, work.own.start_s, now - started_at)  # ahead: its nodes come first


def unit_left_s(work: Work, now: float) -> float:
    """How long its running epoch still takes once it trains; of one that is to begin, all of it."""
    unit_s = work.formed.unit_s
    if isnan(work.begun_at) or not 0.0 < unit_s < inf:
        return unit_s
    return part_left_s(work, unit_s, max(-unit_s, now - work.begun_at))


def finish_left_s(work: Work, now: float) -> float:
    """How long a job whose epochs are all done still takes; 0 once its result is there."""
    if not work.own.workers or not isnan(work.begun_at):
        return part_left_s(work, work.own.end_s, max(0.0, now - work.begun_at))
    return 0.0 if work.has_formed else start_left_s(work, now) + work.own.end_s


def boundary_s(work: Work, now: float) -> float:
    """How long until its running epoch ends; 0 if it is parked at an epoch's end."""
    if work.parked:
        return 0.0
    if not work.left:
        return finish_left_s(work, now)
    return start_left_s(work, now) + unit_left_s(work, now)


def time_to_free_s(work: Work, now: float) -> float:
    """How long until its GPUs are free, if it is (or was) asked to stop.

    Where it stops anywhere that is a step away, which is nothing beside the saving.
    """
    if work.anywhere and work.left and not work.parked:
        return start_left_s(work, now) + work.own.stop_s
    end_s = work.own.end_s if work.left == 1.0 and not work.parked else 0.0
    stop_s = work.own.stop_s if work.left else 0.0
    return boundary_s(work, now) + end_s + stop_s


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
    if inf in (to.total_s, after_s):
        return inf
    if not work.own.workers:
        return after_s + to.start_s + to.total_s
    if not work.left:
        return finish_left_s(work, now)
    if work.stopping:
        return finish_after_restart_s(work, to, after_s, now)
    if to.workers == work.formed.workers and to.workers == work.own.workers:
        return start_left_s(work, now) + (to.total_s - to.unit_s) + unit_left_s(work, now)
    return finish_after_change_s(work, to, after_s, now)


def left_after_stop(work: Work, now: float) -> float:
    """Epochs that are left once it is stopped: at its epoch's end, or anywhere inside."""
    left = work.left if work.parked else work.left - 1.0
    if work.anywhere and not work.parked:
        left = work.left - max(0.0, phi(work, now))
    return max(left, work.anew) if left > 0.0 else 0.0


def finish_after_restart_s(work: Work, to: Width, after_s: float, now: float) -> float:
    """Stopped at its epoch's end, then started again at once."""
    left = left_after_stop(work, now)
    free_s = time_to_free_s(work, now)
    if left <= 0.0:
        return free_s
    return max(free_s, after_s) + (to.start_s + tail_s(work, to, left))


def finish_after_change_s(work: Work, to: Width, after_s: float, now: float) -> float:
    """Running at one width, forming at another at the first epoch's end that allows it."""
    whole_s, ready_s = later_s(work, work.formed), after_s + join_s(work, to, now)
    end_s, done = boundary_s(work, now), 1.0
    while end_s < ready_s - TINY_S and done < work.left and whole_s > 0.0:
        more = min(work.left - done, max(1.0, -(-(ready_s - TINY_S - end_s) // whole_s)))
        end_s, done = end_s + more * whole_s, done + more
    if done >= work.left:
        return end_s + work.formed.end_s
    if work.anew > 0.0:
        return end_s + to.start_s + tail_s(work, to, work.anew)
    return end_s + to.stop_s + tail_s(work, to, work.left - done)


def width_of(levels: Levels, at: int) -> Width:
    """One of a job's widths."""
    return Width(
        levels[WIDTH][at],
        levels[TOTAL][at],
        levels[START][at],
        levels[STOP][at],
        levels[UNIT][at],
        levels[END][at],
    )


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
    if work.stopping or not work.left:
        return Course(time_to_free_s(work, now), left_after_stop(work, now), NOBODY)
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
    at_s, left, whole_s = course.at_s, course.left, later_s(work, course.formed)
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
        return course.at_s + course.formed.end_s
    if not course.formed.workers:
        return inf
    return course.at_s + tail_s(work, course.formed, course.left)
