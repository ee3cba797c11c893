"""So many consecutive jobs of a trace, from a place that a seed draws."""

from dataclasses import dataclass, replace

import numpy as np

from laxity_lab.traces.cases import Source
from laxity_lab.traces.traces import Trace, TraceJob


def draw_window(trace: Trace, jobs: int, draw: np.random.Generator) -> tuple[TraceJob, ...]:
    """So many consecutive jobs from a random place on: bursts and gaps stay as they were."""
    count = min(jobs, len(trace.jobs))
    first = int(draw.integers(len(trace.jobs) - count + 1))
    return trace.jobs[first : first + count]


@dataclass(frozen=True, slots=True)
class Window:
    """So many consecutive jobs from a random place on."""

    source: Source
    jobs: int
    seed: int

    def load(self) -> Trace:
        trace = self.source.load()
        return replace(trace, jobs=draw_window(trace, self.jobs, np.random.default_rng(self.seed)))
