"""GPUs promised over time, and the least share of them with which a job is in time.

Time is cut into 256 slots, finer soon and coarser later, from now to the furthest instant that
matters. A touched slot is reserved whole, so a plan can only be better than what it was counted
on; no list of breakpoints grows with the number of jobs. What lies behind the last slot is free.

The least share (algorithms 7.6, ascending): the smallest width with which the free slots before
the deadline hold the job. Our reading of it differs in one thing: a plan starts once and only ever
grows, because each stop and each restart costs what a slot of GPU time does not show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.forecast import TINY_S, Forecasts, Quantile, stopping
from laxity_scheduler.state import FOREVER, Job

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
        self.free: Floats = np.full(len(edges) - 1, float(gpus))

    def copy(self) -> "Profile":
        other = Profile(self.edges, 0.0)
        other.free = self.free.copy()
        return other

    def slot(self, at_s: float) -> int:
        """The slot that holds this instant."""
        found = int(np.searchsorted(self.edges, at_s + TINY_S, side="right")) - 1
        return min(max(found, 0), len(self.free) - 1)

    def end(self, at_s: float) -> int:
        """One past the last slot that is touched before this instant."""
        found = int(np.searchsorted(self.edges, at_s - TINY_S, side="left"))
        return min(max(found, 0), len(self.free))

    def occupy(self, until_s: Sequence[float], gpus: Sequence[int]) -> None:
        """GPUs that are busy from now until then (inf: for ever)."""
        if not until_s:
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

    def workers(self, gpus_per_worker: int) -> Floats:
        """How many workers of that size fit, per slot (pooled: nodes are not told apart)."""
        return np.floor(np.maximum(self.free, 0.0) / gpus_per_worker + 1e-9)


def simulate(forecasts: Forecasts, job: Job, steps: Steps, quantile: Quantile) -> float:
    """Seconds from now to the end of a job that has these workers at these times."""
    walk = _Walk(forecasts, job, quantile)
    for from_s, workers in steps:
        walk.change(from_s, workers)
    return walk.end_s()


class _Walk:
    """Where a job is at an epoch's end: widths change only there, and new workers must be up."""

    def __init__(self, forecasts: Forecasts, job: Job, quantile: Quantile) -> None:
        self._forecasts, self._job, self._quantile = forecasts, job, quantile
        self._curve = forecasts.curve(job)
        self._left = float(self._curve.epochs_left)  # epochs after `_at_s`
        self._formed = (job.formed or job.workers) if job.workers else 0
        self._at_s = 0.0
        if self._formed:
            self._left -= job.parked_epoch is None
            self._at_s = forecasts.boundary_s(job, quantile)
        if self._formed and stopping(job):
            self._at_s, self._formed = forecasts.freed_s(job, quantile), 0

    def change(self, from_s: float, workers: int) -> None:
        """Have these workers from then on."""
        as_it_is = workers == self._formed and (from_s > 0.0 or workers == self._job.workers)
        if as_it_is or self._left <= 0.0:
            return
        if self._formed and workers:
            self._reform(from_s, workers)
        elif workers:
            self._at_s = max(self._at_s, from_s) + self._curve.start_s(workers, self._quantile)
        self._formed = workers

    def end_s(self) -> float:
        if self._left <= 0.0:
            return self._at_s
        if not self._formed:
            return FOREVER
        return self._at_s + self._left * self._curve.epoch_s(self._formed, self._quantile)

    def _reform(self, from_s: float, workers: int) -> None:
        epoch_s = self._curve.epoch_s(self._formed, self._quantile)
        wait_s = from_s + self._join_s(from_s, workers) - self._at_s
        if wait_s > TINY_S and 0.0 < epoch_s < FOREVER:
            more = min(self._left, float(-int(-(wait_s - TINY_S) // epoch_s)))
            self._at_s, self._left = self._at_s + more * epoch_s, self._left - more
        if self._left > 0.0:
            self._at_s += self._curve.reform_s(workers, self._quantile)

    def _join_s(self, from_s: float, workers: int) -> float:
        if from_s <= 0.0:
            return self._forecasts.join_s(self._job, workers, self._quantile)
        return self._curve.start_s(workers, self._quantile) * (workers > self._formed)


class Planner:
    """Finds shares on a profile. `grows` says whether a running job can be given more workers."""

    def __init__(self, forecasts: Forecasts, *, grows: bool) -> None:
        self.forecasts = forecasts
        self.grows = grows

    def least(self, claim: Claim, profile: Profile) -> Share | None:
        """The smallest width in time, or None."""
        for width in self.forecasts.curve(claim.job).widths:
            share = self._at_level(claim.job, profile, width, claim.deadline_s)
            if share is not None:
                return share
        return None

    def earliest(self, job: Job, profile: Profile) -> Share | None:
        """The share that ends soonest, or None if there is never room."""
        shares = [
            self._at_level(job, profile, width, FOREVER)
            for width in self.forecasts.curve(job).widths
        ]
        found = [share for share in shares if share is not None and share.finish_s < FOREVER]
        return min(found, key=lambda share: share.finish_s, default=None)

    def fixed(self, job: Job, steps: Steps) -> Share:
        return Share(steps, simulate(self.forecasts, job, steps, "p90"))

    def _at_level(self, job: Job, profile: Profile, width: int, deadline_s: float) -> Share | None:
        """At most `width` workers. The window is widened until the plan ends within it."""
        ideal_s = self.forecasts.rest_s(job, width)
        if ideal_s > deadline_s + TINY_S or ideal_s == FOREVER:
            return None
        room = np.minimum(profile.workers(job.gpus_per_worker), width)
        last = len(room) if deadline_s == FOREVER else max(1, profile.end(deadline_s))
        end = min(last, max(1, profile.end(ideal_s)))
        for attempt in range(MOST_EXTENSIONS + 1):
            if attempt == MOST_EXTENSIONS:
                end = last
            steps = self._steps(job, room[:end], profile.edges, width)
            finish_s = simulate(self.forecasts, job, steps, "p90") if steps else FOREVER
            need = len(room) if finish_s == FOREVER else profile.end(finish_s)
            if finish_s <= deadline_s + TINY_S and finish_s < FOREVER and need <= end:
                return self.fixed(job, steps)
            if end >= last:
                return None
            end = min(last, max(end + 1, min(need, end + 1 + (last - end) // 4)))
        return None

    def _steps(self, job: Job, room: Floats, edges: Floats, width: int) -> Steps:
        """Widths that never shrink: in each slot what is free in it and in all later ones."""
        lasting = np.minimum.accumulate(room[::-1])[::-1]
        widths = self.forecasts.curve(job).widths
        if self.grows:
            levels = np.zeros(width + 1, dtype=np.int64)
            for level in widths:
                levels[level:] = min(level, width)
            chosen = levels[lasting.astype(np.int64)]
        else:
            chosen = np.where(lasting >= width, width, 0)
        starts = np.flatnonzero(np.diff(chosen, prepend=-1))
        steps = tuple((float(edges[slot]), int(chosen[slot])) for slot in starts)
        return steps if any(workers for _, workers in steps) else ()
