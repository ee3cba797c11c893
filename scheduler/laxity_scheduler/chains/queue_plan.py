"""How a batch cluster's scheduler plans its queue, as Slurm does: the state of a queue, and its plan.

Time is counted in ticks (minutes). The plan has slots of `SLOT_TICKS`: each waiting job, in order,
takes the earliest place that its nodes and its time limit leave.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit

TICK_S: Final = 60
NOW, ARRIVED, PENDING, RUNNING, STARTED, FREE = range(6)  # places in `counts`
NEVER: Final = np.iinfo(np.int64).max
NOBODY: Final = -1

# As in Mirage's released simulator: slots of the plan (two days), ticks of a slot, and how many waiting
# jobs it looks at.
SLOTS: Final = 288
SLOT_TICKS: Final = 10
MOST_TESTED: Final = 3_000


class Jobs(NamedTuple):
    """Jobs by row. The first `last` come from the log in order of submission; spare rows follow."""

    submit: Ints  # tick
    run: Ints  # ticks, at least 1
    limit: Ints  # ticks
    nodes: Ints
    rank: Floats
    last: int


class BatchState(NamedTuple):
    """What changes. `pending` is in order of rank; the first `counts[PENDING]` of it count."""

    pending: Ints
    running: Ints
    start: Ints  # tick by row, NEVER before the start
    started: Ints  # rows in the order in which they started
    counts: Ints


def ticks_of(seconds: float) -> int:
    """Of a duration, at least one."""
    return max(1, math.ceil(seconds / TICK_S))


@jit
def plan_free_nodes(jobs: Jobs, state: BatchState) -> Ints:
    """Free nodes per slot, if every running job stays to its time limit."""
    free = np.full(SLOTS, state.counts[FREE], dtype=np.int64)
    for place in range(state.counts[RUNNING]):
        row = state.running[place]
        left = state.start[row] + jobs.limit[row] - state.counts[NOW]
        # at least the slot of now: who runs holds its nodes
        until = min(SLOTS, max(1, -(-left // SLOT_TICKS)))
        free[until:] += jobs.nodes[row]
    return free


@jit
def reserve_place(free: Ints, nodes: int, length: int) -> int:
    """Take nodes for so many slots as early as they are free; the first slot, or NOBODY."""
    slots = len(free)
    first = 0
    while first < slots:
        until = min(slots, first + length)
        slot = first
        while slot < until and free[slot] >= nodes:
            slot += 1
        if slot == until:
            free[first:until] -= nodes
            return first
        first = slot + 1
    return NOBODY


@jit
def plan_start(jobs: Jobs, state: BatchState, nodes: int, limit: int) -> int:
    """The tick at which the plan of now starts a job behind the whole queue; NEVER beyond it."""
    free = plan_free_nodes(jobs, state)
    for place in range(min(state.counts[PENDING], MOST_TESTED)):
        row = state.pending[place]
        reserve_place(free, jobs.nodes[row], -(-jobs.limit[row] // SLOT_TICKS))
    first = reserve_place(free, nodes, -(-limit // SLOT_TICKS))
    return NEVER if first == NOBODY else int(state.counts[NOW] + first * SLOT_TICKS)
