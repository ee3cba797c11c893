# ruff: noqa: PLR0917 - compiled loops take arrays, by place
"""Plans of promised jobs where widths change at the ends of epochs, and what else fits beside them.

A rule's own plans share all GPUs anew at every instant (`shares.plans`). Where they are carried out,
whoever is to give GPUs back keeps them to the end of its epoch. So here (our own):

- each running job holds its GPUs to the end of its epoch
- plans go around that epoch by epoch: a width is planned where its GPUs are free for a whole one
- who grows takes its GPUs before its epoch ends
- anybody may have more than its plan where no plan needs that before the epoch trained on it ends
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.frame.compiled import jit
from laxity_scheduler.shares.plans import SLOTS, furthest_deadline_s, slot_lengths
from laxity_scheduler.shares.rows import TINY, Columns

LATE: Final = -1.0


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """Of n jobs on L levels: what they hold, and how long their epochs are.

    `held` (n,): levels, -1 without; `ends_s` and `freed_s` (n,): until the epoch that runs ends, and
    is saved; `epoch_s` and `save_s` (n, L); `left` (n,): the share still to do when that epoch ends.
    """

    held: Ints
    ends_s: Floats
    freed_s: Floats
    epoch_s: Floats
    save_s: Floats
    left: Floats


@jit
def fits_until(gpus: float, slot: int, end_s: float, free: Floats, starts: Floats) -> bool:
    """Whether so many GPUs are free from this slot until then."""
    while slot < len(free) and starts[slot] < end_s - TINY:
        if free[slot] < gpus - TINY:
            return False
        slot += 1
    return True


@jit
def plan_epochs(
    jobs: Columns,
    epoch_s: Floats,
    job: int,
    cap: int,
    begins_s: float,
    left: float,
    free: Floats,
    starts: Floats,
    chosen: Ints,
) -> float:
    """Levels by slot with at most `cap`, whole epochs each, into `chosen`; when it ends, LATE if late.

    `starts` (SLOTS + 1,) ends with the horizon. Epochs shorter than a slot are trained by the slot.
    """
    chosen[:] = -1
    at_s, slot, before = begins_s, 0, jobs.level[job]
    while left > TINY:
        while slot < len(free) and starts[slot + 1] <= at_s + TINY:
            slot += 1
        if slot == len(free) or at_s >= jobs.due[job]:
            return LATE
        level, span_s, epochs = -1, 0.0, 1.0
        for option in range(cap, -1, -1):
            one_s = epoch_s[job, option]
            if one_s == np.inf:  # nobody knows
                continue
            most = np.ceil(left * jobs.total[job, option] / one_s - TINY)
            epochs = max(1.0, min(most, np.floor((starts[slot + 1] - at_s) / one_s)))
            span_s = epochs * one_s + (0.0 if option == before else jobs.change[job, option])
            if fits_until(float(jobs.width[job, option]), slot, at_s + span_s, free, starts):
                level = option
                break
        before = level
        if level < 0:
            at_s = starts[slot + 1]
            continue
        left -= epochs * epoch_s[job, level] / jobs.total[job, level]
        end = slot
        while end < len(free) and starts[end] < at_s + span_s - TINY:
            chosen[end] = max(chosen[end], level)
            end += 1
        at_s += span_s
    return at_s if at_s <= jobs.due[job] + TINY else LATE


class EpochEndPlans:
    """GPUs over time: what runs holds them to the ends of epochs, and plans reserve them from then on."""

    def __init__(self, jobs: Columns, times: EpochTimes, gpus: float, least: Ints) -> None:
        """`jobs` with deadlines of promised ones only; `least` (n,): levels that are in time alone."""
        self._jobs, self._times = jobs, times
        lengths = slot_lengths(furthest_deadline_s(jobs, least))
        self._starts = np.append(0.0, np.cumsum(lengths))
        runs = times.held >= 0
        held = np.where(runs, jobs.width[np.arange(len(runs)), np.maximum(times.held, 0)], 0)
        until = self._starts[:-1] < times.freed_s[:, None]
        self._own = np.where(until & runs[:, None], held[:, None], 0.0)
        self._free = gpus - self._own.sum(axis=0)

    def reserve(self, row: int, least: int) -> int | None:
        """Reserve its narrowest plan in time; its next level, -1 to wait. None: none is in time."""
        for cap in range(least, int(self._jobs.levels[row])):
            chosen, end_s = self._plan(self._jobs, row, cap)
            if end_s != LATE:
                return self._keep(row, chosen)
        return None

    def reserve_late(self, row: int) -> tuple[int, float]:
        """The same for one that is late: as wide as there is room; and when it ends at the latest."""
        anytime = self._jobs._replace(due=np.full_like(self._jobs.due, np.inf))
        chosen, end_s = self._plan(anytime, row, int(self._jobs.levels[row]) - 1)
        if end_s == LATE:  # beyond the horizon nothing is reserved
            end_s = float(self._starts[-1] + self._jobs.total[row].min() * self._times.left[row])
        return self._keep(row, chosen), end_s

    def _plan(self, jobs: Columns, row: int, cap: int) -> tuple[Ints, float]:
        times, chosen = self._times, np.empty(SLOTS, dtype=np.int64)
        begins_s, left = float(times.ends_s[row]), float(times.left[row])
        end_s = plan_epochs(
            jobs,
            times.epoch_s,
            row,
            cap,
            begins_s,
            left,
            self._free + self._own[row],
            self._starts,
            chosen,
        )
        return chosen, end_s

    def _keep(self, row: int, chosen: Ints) -> int:
        """Take the plan's GPUs; those that it holds anyway are taken already."""
        runs = self._times.held[row] >= 0
        planned = np.where(chosen >= 0, self._jobs.width[row, np.maximum(chosen, 0)], 0)
        self._raise_own(row, planned, np.ones(SLOTS, dtype=np.bool_))
        if not runs:
            return int(chosen[0])
        after = np.flatnonzero(self._starts[:-1] >= self._times.ends_s[row])
        if self._times.left[row] <= TINY or not len(after):
            return int(self._times.held[row])
        level = int(chosen[after[0]])
        if level > self._times.held[row]:
            before = self._starts[:-1] < self._times.ends_s[row]
            self._raise_own(row, np.full(SLOTS, self._jobs.width[row, level]), before)
        return level

    def _raise_own(self, row: int, gpus: Ints | Floats, slots: Bools) -> None:
        """Let it have so many in these slots, as far as they are free."""
        more = np.where(
            slots, np.clip(gpus - self._own[row], 0.0, np.maximum(self._free, 0.0)), 0.0
        )
        self._free = self._free - more
        self._own[row] += more

    def fits(self, row: int, level: int) -> bool:
        """Whether it may hold this level until the epoch that it would train on it ends."""
        more = self._jobs.width[row, level] - self._own[row]
        until = self._held_until(row, level)
        return not (until & (more > np.maximum(self._free, 0.0) + TINY)).any()

    def take(self, row: int, level: int) -> None:
        """Hold this level until then."""
        gpus = np.full(SLOTS, float(self._jobs.width[row, level]))
        self._raise_own(row, gpus, self._held_until(row, level))

    def _held_until(self, row: int, level: int) -> Bools:
        """The slots that begin before then."""
        times = self._times
        end_s = float(times.freed_s[row])
        if times.held[row] < 0 or times.left[row] > TINY:  # else it ends with the epoch that runs
            change_s = 0.0 if times.held[row] == level else self._jobs.change[row, level]
            end_s = (
                times.ends_s[row] + change_s + times.epoch_s[row, level] + times.save_s[row, level]
            )
        before: Bools = self._starts[:-1] < end_s
        return before
