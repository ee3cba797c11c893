"""GPUs promised over time: what is free when, and the share of them that a job is planned to have.

Time is cut into 512 slots, finer soon and coarser later, from now to the furthest instant that
matters. A touched slot is reserved whole, so a plan can only be better than what it was counted
on; no list of breakpoints grows with the number of jobs. What lies behind the last slot is free.

GPUs are counted on the whole cluster and on each region of it (`regions`): the parts of a profile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple, Self

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.job import FOREVER, Job

SLOTS: Final = 512  # a plan costs time for each; of a week the last one has 2 hours
FIRST_SLOT_S: Final = (
    15.0  # slots slide with the clock: in coarse ones a plan that fits does so no more
)

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
    seats: tuple[float, ...] = ()  # GPUs of parts that it could leave, and on which it will sit

    @property
    def starts_s(self) -> float:
        return next((at_s for at_s, workers in self.steps if workers), FOREVER)

    @property
    def workers(self) -> int:
        """The first width that is not 0."""
        for _, workers in self.steps:
            if workers:
                return workers
        return 0

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


class Profile(NamedTuple):
    """Free GPUs per slot: of the cluster, then of each region."""

    edges: Floats  # (SLOTS + 2,)
    parts: Floats  # (1 + R, SLOTS + 1): the last slot is all that comes after

    @classmethod
    def of(cls, edges: Floats, *gpus: float) -> Self:
        """So many GPUs of each part, free for ever."""
        return cls(edges, np.repeat(np.array(gpus, float)[:, None], len(edges) - 1, axis=1))

    @property
    def free(self) -> Floats:
        """Of the whole cluster, (SLOTS + 1,)."""
        free: Floats = self.parts[0]
        return free

    def copy(self) -> "Profile":
        return Profile(self.edges, self.parts.copy())

    def occupy(
        self, until_s: Sequence[float] | Floats, gpus: Sequence[float] | Floats, part: int = 0
    ) -> None:
        """GPUs that are busy from now until then (inf: for ever)."""
        if not len(until_s):
            return
        slots = self.parts.shape[1]
        ends = np.searchsorted(self.edges, np.asarray(until_s) - TINY_S, side="left")
        ends = np.clip(ends, 0, slots)
        freed = np.bincount(ends, weights=np.asarray(gpus, float), minlength=slots + 1)
        self.parts[part] -= freed.sum() - np.cumsum(freed)[:slots]

    def free_from(self, now: float, more: Floats, at_s: Floats, part: int) -> None:
        """So many GPUs are free now, and so many more (n,) from each of these instants on."""
        slots = self.parts.shape[1]
        begins = np.clip(np.searchsorted(self.edges, at_s - TINY_S, side="left"), 0, slots)
        added = np.bincount(begins, weights=more, minlength=slots + 1)
        self.parts[part] = now + np.cumsum(added)[:slots]

    def add(self, from_s: float, until_s: float, gpus: float) -> None:
        """Change what is free from one instant to another on the cluster alone."""
        add_gpus(self, from_s, until_s, np.array([gpus]))

    def reserve(self, share: Share, needed_gpus: Callable[[int], Floats]) -> None:
        """Take a share out; so many GPUs of each part are needed for so many workers."""
        ends = [at_s for at_s, _ in share.steps[1:]] + [share.finish_s]
        for (from_s, workers), until_s in zip(share.steps, ends, strict=True):
            if workers and until_s > from_s:
                take_gpus(self, from_s, until_s, needed_gpus(workers)[:, None], 0)


def find_slot(profile: Profile, at_s: float) -> int:
    """The slot that holds this instant."""
    slot = int(np.searchsorted(profile.edges, at_s + TINY_S, side="right")) - 1
    return min(max(slot, 0), len(profile.edges) - 2)


def find_end(profile: Profile, at_s: float) -> int:
    """One past the last slot that is touched before this instant."""
    return min(int(np.searchsorted(profile.edges, at_s - TINY_S)), len(profile.edges) - 1)


def add_gpus(profile: Profile, from_s: float, until_s: float, gpus: Floats) -> None:
    """Change what is free of each part, (R,), from one instant to another, or for ever.

    Touched slots change whole.
    """
    last = len(profile.edges) - 1
    if until_s != FOREVER:
        last = min(find_end(profile, until_s), last - 1)
    first = find_slot(profile, from_s)
    for part in range(len(gpus)):
        profile.parts[part, first:last] += gpus[part]


def keep_gpus(
    profile: Profile, from_s: float, until_s: float, gpus: float, parts: Sequence[int]
) -> None:
    """Keep GPUs of these parts in all whole slots from then until then.

    Not in a slot that is only touched: what comes before ends in it, and would be in the way.
    """
    first = int(np.searchsorted(profile.edges, from_s - TINY_S))
    last = int(np.searchsorted(profile.edges, until_s + TINY_S, side="right")) - 1
    profile.parts[list(parts), first : max(first, last)] -= gpus


def take_gpus(profile: Profile, from_s: float, until_s: float, needs: Floats, level: int) -> None:
    """Less is free: what a level needs of each part, (R, K); behind the last slot all stays as it is."""
    first, last = find_slot(profile, from_s), find_end(profile, until_s)
    last = min(last, len(profile.edges) - 2)
    for part in range(len(needs)):
        profile.parts[part, first:last] -= needs[part, level]


class ShareColumns(NamedTuple):
    """n shares, and what `Share` says of itself, of all; who has none has -1 workers, and never starts."""

    from_s: Floats  # (n, K): steps; those of 0 workers at the end are none
    widths: Ints  # (n, K)
    finish_s: Floats  # (n,)
    seats: Floats  # (n, P); no parts where nobody asked for seats

    def at(self, places: Ints) -> "ShareColumns":
        return ShareColumns._make([column[places] for column in self])

    @property
    def workers_now(self) -> Ints:
        widths: Ints = self.widths[:, 0]
        return widths

    @property
    def workers(self) -> Ints:
        widths: Ints = self.widths[self._starts]
        return widths

    @property
    def widest(self) -> Ints:
        return self.widest_by(FOREVER)

    def widest_by(self, due_s: float) -> Ints:
        """The widest that is planned up to this many seconds from now."""
        widths: Ints = np.where(self.from_s <= due_s, self.widths, 0).max(axis=1)
        return widths

    def widths_at(self, at_s: float) -> Ints:
        """The widths that are planned for so many seconds from now."""
        step = np.where(self.from_s <= at_s, self.from_s, -1.0).argmax(axis=1)
        widths: Ints = np.where(at_s < self.finish_s, self.widths[np.arange(len(step)), step], 0)
        return widths

    @property
    def starts_s(self) -> Floats:
        starts_s: Floats = self.from_s[self._starts]
        return starts_s

    @property
    def _starts(self) -> tuple[Ints, Ints]:
        """Rows, and the first step of each that has workers."""
        return np.arange(len(self.widths)), (self.widths != 0).argmax(axis=1)


NONE: Final = ShareColumns(
    np.full((1, 1), FOREVER), np.full((1, 1), -1), np.full(1, FOREVER), np.zeros((1, 0))
)


class ShareTable:
    """Shares by job id. Rows are only ever added; the first is that of who has none."""

    def __init__(self) -> None:
        self._rows = NONE
        self._new: list[ShareColumns] = []  # not in the rows yet
        self._place: dict[str, int] = {}
        self._shares: dict[str, Share] = {}  # those that were asked for

    def add_rows(self, names: Sequence[str], rows: ShareColumns) -> None:
        """The shares of these jobs, which had none."""
        first = 1 + len(self._place)
        self._place.update(zip(names, range(first, first + len(names)), strict=True))
        self._new.append(rows)

    def add_widths(self, names: Sequence[str], workers: Ints, finish_s: Floats) -> None:
        """Of jobs that have so many workers from now to their end."""
        from_s, seats = np.zeros((len(names), 1)), np.zeros((len(names), 0))
        self.add_rows(names, ShareColumns(from_s, workers[:, None], finish_s, seats))

    def add(self, name: str, share: Share) -> None:
        from_s = np.array([[at_s for at_s, _ in share.steps]])
        widths = np.array([[workers for _, workers in share.steps]])
        finish_s, seats = np.array([share.finish_s]), np.array([share.seats], dtype=np.float64)
        self.add_rows([name], ShareColumns(from_s, widths, finish_s, seats))

    def __contains__(self, name: str) -> bool:
        return name in self._place

    def get(self, name: str) -> Share | None:
        return self[name] if name in self._place else None

    def __getitem__(self, name: str) -> Share:
        if name not in self._shares:
            place, rows = self._place[name], self._all_rows()
            count = int(rows.widths[place].nonzero()[0][-1]) + 1
            steps = zip(rows.from_s[place].tolist(), rows.widths[place].tolist(), strict=True)
            seats = tuple(rows.seats[place].tolist())
            share = Share(tuple(steps)[:count], float(rows.finish_s[place]), seats)
            self._shares[name] = share
        return self._shares[name]

    def rows_of(self, names: Sequence[str]) -> ShareColumns:
        places = np.array(list(map(self._place.get, names, repeat(0))), dtype=np.int64)
        return self._all_rows().at(places)

    def _all_rows(self) -> ShareColumns:
        if self._new:
            self._rows = _stack([self._rows, *self._new])
            self._new.clear()
        return self._rows


def _stack(blocks: Sequence[ShareColumns]) -> ShareColumns:
    """One block after the other, with as many steps and parts as the block that has most."""
    count = sum(len(block.finish_s) for block in blocks)
    steps = max(block.widths.shape[1] for block in blocks)
    from_s, widths = np.zeros((count, steps)), np.zeros((count, steps), dtype=np.int64)
    seats = np.zeros((count, max(block.seats.shape[1] for block in blocks)))
    rows, end = ShareColumns(from_s, widths, np.zeros(count), seats), 0
    for block in blocks:
        begin, end = end, end + len(block.finish_s)
        for column, values in zip(rows, block, strict=True):
            column[(slice(begin, end), *map(slice, values.shape[1:]))] = values
    return rows
