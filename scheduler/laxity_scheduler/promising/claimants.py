"""What the loops that plan claims work on: who claims, by which rules, and the shares that they find."""

from typing import Any, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import EXTRA, NOBODY
from laxity_scheduler.frame.kernels import Work
from laxity_scheduler.frame.loops import NEVER

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
