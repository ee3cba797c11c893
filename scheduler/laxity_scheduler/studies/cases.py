"""Whose jobs a trial runs: a whole trace, a window of it, a closed batch of it, or made ones.

A case is a small value, so that it travels to another process; `load` gives its jobs.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from laxity_scheduler.simulate.generate import Mix, draw_closed_batch, generate
from laxity_scheduler.simulate.sweep import Source, load_whole
from laxity_scheduler.simulate.traces import Trace


class Case(Protocol):
    """Anything that gives jobs."""

    def load(self) -> Trace: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """Every job of a trace."""

    source: Source

    def load(self) -> Trace:
        return load_whole(self.source)


@dataclass(frozen=True, slots=True)
class Window:
    """So many consecutive jobs from a random place on: bursts and gaps stay as they were."""

    source: Source
    jobs: int
    seed: int

    def load(self) -> Trace:
        trace = load_whole(self.source)
        last = max(0, len(trace.jobs) - self.jobs)
        first = int(np.random.default_rng(self.seed).integers(0, last + 1))
        return replace(trace, jobs=trace.jobs[first : first + self.jobs])


@dataclass(frozen=True, slots=True)
class Batch:
    """So many jobs drawn from a trace and submitted within an hour."""

    source: Source
    jobs: int
    seed: int

    def load(self) -> Trace:
        return draw_closed_batch(load_whole(self.source), jobs=self.jobs, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Made:
    """Jobs drawn from stated distributions."""

    mix: Mix
    seed: int

    def load(self) -> Trace:
        return generate(self.mix, seed=self.seed)
