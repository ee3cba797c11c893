"""GPUs promised over time, and the least share of them with which a job is in time.

Time is cut into 256 slots, finer soon and coarser later, from now to the furthest instant that
matters. A touched slot is reserved whole, so a plan can only be better than what it was counted
on; no list of breakpoints grows with the number of jobs. What lies behind the last slot is free.

The least share (algorithms.md 7.6, ascending): the smallest width with which the free slots before
the deadline hold the job. Our reading of it differs in one thing: a plan starts once and only ever
grows, because each stop and each restart costs what a slot of GPU time does not show.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job

SLOTS: Final = 256
FIRST_SLOT_S: Final = 60.0
MOST_EXTENSIONS: Final = 12  # how often a plan's window is widened before the whole one is taken

Steps = tuple[tuple[float, int], ...]  # (seconds from now, workers from then on)


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that must be done by `deadline_s` from now (inf: only as soon as there is room)."""

    job: Job
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Share:
    """The widths planned for a claim, and when it ends with them, in seconds from now."""

    steps: Steps
    finish_s: float  # at P90

    @property
    def starts_s(self) -> float:
        return next((at_s for at_s, workers in self.steps if workers), FOREVER)

    @property
    def workers(self) -> int:
        """The first width that is not 0."""
        return next((workers for _, workers in self.steps if workers), 0)

    @property
    def widest(self) -> int:
        return max(workers for _, workers in self.steps)

    @property
    def workers_now(self) -> int:
        return self.steps[0][1]


def slot_edges(horizon_s: float, last_s: float = 0.0) -> Floats:
    """Edges in seconds from now, shape (SLOTS + 2,): the last slot is all that comes after.

    Where something is busy beyond the horizon, the last but one slot reaches to its end, `last_s`.
    """
    horizon_s = max(horizon_s, 1e-3)
    if horizon_s <= SLOTS * FIRST_SLOT_S:
        edges: Floats = np.linspace(0.0, horizon_s, SLOTS + 1)
    else:
        ratio = _ratio(horizon_s / FIRST_SLOT_S)
        edges = FIRST_SLOT_S * (ratio ** np.arange(SLOTS + 1.0) - 1.0) / (ratio - 1.0)
    edges[SLOTS] = max(edges[SLOTS], last_s)
    return np.append(edges, FOREVER).astype(np.float64)


def _ratio(total: float) -> float:
    """The r with 1 + r + ... + r^(SLOTS - 1) = total, by bisection."""
    low, high = 1.0 + 1e-9, 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if (middle**SLOTS - 1.0) / (middle - 1.0) < total:
            low = middle
        else:
            high = middle
    return high


class Profile:
    """Free GPUs per slot, shape (SLOTS + 1,)."""

    def __init__(self, edges: Floats, gpus: float) -> None:
        self.edges = edges
        self.marks: list[float] = edges.tolist()  # a list is searched faster than an array
        self.free: Floats = np.full(len(edges) - 1, float(gpus))

    def copy(self) -> "Profile":
        other = Profile.__new__(Profile)
        other.edges, other.marks, other.free = self.edges, self.marks, self.free.copy()
        return other

    @property
    def first_slot_s(self) -> float:
        return self.marks[1] - self.marks[0]

    def slot(self, at_s: float) -> int:
        """The slot that holds this instant."""
        found = bisect_right(self.marks, at_s + TINY_S) - 1
        return min(max(found, 0), len(self.free) - 1)

    def end(self, at_s: float) -> int:
        """One past the last slot that is touched before this instant."""
        return min(bisect_left(self.marks, at_s - TINY_S), len(self.free))

    def occupy(self, until_s: Sequence[float] | Floats, gpus: Sequence[float] | Floats) -> None:
        """GPUs that are busy from now until then (inf: for ever)."""
        if not len(until_s):
            return
        ends = np.searchsorted(self.edges, np.asarray(until_s) - TINY_S, side="left")
        ends = np.clip(ends, 0, len(self.free))
        freed = np.bincount(ends, weights=np.asarray(gpus, float), minlength=len(self.free) + 1)
        self.free -= freed.sum() - np.cumsum(freed)[: len(self.free)]

    def add(self, from_s: float, until_s: float, gpus: float) -> None:
        """Change what is free from one instant to another; touched slots change whole."""
        last = len(self.free) if until_s == FOREVER else min(self.end(until_s), SLOTS)
        self.free[self.slot(from_s) : last] += gpus

    def reserve(self, share: Share, gpus_per_worker: int) -> None:
        """Take a share's GPUs out."""
        ends = [at_s for at_s, _ in share.steps[1:]] + [share.finish_s]
        for (from_s, workers), until_s in zip(share.steps, ends, strict=True):
            if workers and until_s > from_s:
                first, last = self.slot(from_s), min(self.end(until_s), SLOTS)
                self.free[first:last] -= workers * gpus_per_worker

    def seen_by(self, job: Job) -> "Profile":
        """What is free for this job; some may not use all nodes (`regions.SplitProfile`)."""
        return self

    def spend(self, share: Share, job: Job) -> None:
        """Take this job's share out."""
        self.reserve(share, job.gpus_per_worker)

    def change(self, until_s: float, job: Job, workers: range, sign: int) -> None:
        """These workers of a running job are given back (1) or taken (-1) from now until then."""
        self.add(0.0, until_s, sign * len(workers) * job.gpus_per_worker)

    def workers(self, gpus_per_worker: int) -> Floats:
        """How many workers of that size fit, per slot (pooled: nodes are not told apart)."""
        return np.floor(self.room(gpus_per_worker))

    def room(self, gpus_per_worker: int) -> Floats:
        """The same before rounding down: less than w where w workers do not fit."""
        return np.maximum(self.free, 0.0) / gpus_per_worker + 1e-9


class Planner:
    """Finds shares on a profile. `grows` says whether a running job can be given more workers."""

    def __init__(self, forecasts: Forecasts, *, grows: bool) -> None:
        self.forecasts = forecasts
        self.grows = grows

    def least(self, claim: Claim, profile: Profile) -> Share | None:
        """The smallest width in time, or None."""
        search = _Search(self, claim.job, profile)
        for width in search.widths:
            share = search.at_most(width, claim.deadline_s)
            if share is not None:
                return share
        return None

    def earliest(self, job: Job, profile: Profile) -> Share | None:
        """The share that ends soonest, or None if there is never room."""
        search = _Search(self, job, profile)
        shares = [search.at_most(width, FOREVER) for width in search.widths]
        found = [share for share in shares if share is not None and share.finish_s < FOREVER]
        return min(found, key=lambda share: share.finish_s, default=None)

    def fixed(self, job: Job, steps: Steps) -> Share:
        return Share(steps, self.forecasts.finish_s(job, steps))


class _Search:
    """One job's shares on one profile. Widths never shrink: in each slot what stays free after it.

    So a width begins in the slot after the last one that is too full for it, within the window that
    is looked at; where a slot is too full is found once per width.
    """

    def __init__(self, planner: Planner, job: Job, profile: Profile) -> None:
        self._forecasts, self._grows = planner.forecasts, planner.grows
        self._job, self._profile = job, profile
        self.widths = planner.forecasts.curve(job).widths
        self._room: Floats | None = None
        self._full: dict[int, list[int]] = {}

    def at_most(self, width: int, deadline_s: float) -> Share | None:
        """At most `width` workers. The window is widened until the plan ends within it."""
        ideal_s = self._forecasts.rest_s(self._job, width)
        if ideal_s > deadline_s + TINY_S or ideal_s == FOREVER:
            return None
        profile, slots = self._profile, len(self._profile.free)
        last = slots if deadline_s == FOREVER else max(1, profile.end(deadline_s))
        end = min(last, max(1, profile.end(ideal_s)))
        for attempt in range(MOST_EXTENSIONS + 1):
            if attempt == MOST_EXTENSIONS:
                end = last
            steps = self._steps(width, end)
            finish_s = self._forecasts.finish_s(self._job, steps) if steps else FOREVER
            need = slots if finish_s == FOREVER else profile.end(finish_s)
            if finish_s <= deadline_s + TINY_S and finish_s < FOREVER and need <= end:
                return Share(steps, finish_s)
            if end >= last:
                return None
            end = min(last, max(end + 1, min(need, end + 1 + (last - end) // 4)))
        return None

    def _steps(self, width: int, end: int) -> Steps:
        """Widths by slot in a window that ends with the slot before `end`; () if none fits."""
        marks = self._profile.marks
        steps: list[tuple[float, int]] = [(marks[0], 0)]
        levels = [level for level in self.widths if level <= width] if self._grows else [width]
        for level in levels:
            full = self._too_full(level)
            before = bisect_left(full, end)
            begins = full[before - 1] + 1 if before else 0
            if begins >= end:
                break
            if steps[-1][0] == marks[begins]:
                steps.pop()
            steps.append((marks[begins], level))
        return tuple(steps) if steps[-1][1] else ()

    def _too_full(self, width: int) -> list[int]:
        """The slots in which so many workers do not fit."""
        known = self._full.get(width)
        if known is None:
            if self._room is None:
                self._room = self._profile.room(self._job.gpus_per_worker)
            known = self._full[width] = np.flatnonzero(self._room < width).tolist()
        return known
