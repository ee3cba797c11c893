"""A batch cluster through time, event by event, as Slurm's scheduler plans it.

Time is counted in ticks (minutes) since the simulation began. A job's rank is its priority at
tick 0: all waiting jobs age alike, so the order of the queue never changes. At most ticks the
scheduler starts the head of the queue while it fits. Every `PASS_EVERY` ticks it makes a whole
backfill pass: each job, in order, takes the earliest place in the plan that its nodes and its time
limit leave; those whose place is now start. Only ticks where something can change are visited.
"""

from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit

NOW, ARRIVED, PENDING, RUNNING, STARTED, FREE = range(6)  # places in `counts`
NEVER: Final = np.iinfo(np.int64).max
NOBODY: Final = -1

# How the scheduler plans, as in Mirage's released simulator: ticks between two backfill passes, slots
# of the plan (two days), ticks of a slot, and how many waiting jobs it looks at.
PASS_EVERY: Final = 10
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


@jit
def enqueue(jobs: Jobs, state: BatchState, row: int) -> None:
    """Put a job behind all that rank as high."""
    place = state.counts[PENDING]
    while place > 0 and jobs.rank[state.pending[place - 1]] < jobs.rank[row]:
        state.pending[place] = state.pending[place - 1]
        place -= 1
    state.pending[place] = row
    state.counts[PENDING] += 1


@jit
def admit_arrivals(jobs: Jobs, state: BatchState) -> None:
    """Enqueue all that have been submitted by now."""
    row = state.counts[ARRIVED]
    while row < jobs.last and jobs.submit[row] <= state.counts[NOW]:
        enqueue(jobs, state, row)
        row += 1
    state.counts[ARRIVED] = row


@jit
def end_jobs(jobs: Jobs, state: BatchState) -> None:
    """Free the nodes of all that have ended by now."""
    running_count = 0
    for place in range(state.counts[RUNNING]):
        row = state.running[place]
        if state.start[row] + jobs.run[row] <= state.counts[NOW]:
            state.counts[FREE] += jobs.nodes[row]
        else:
            state.running[running_count] = row
            running_count += 1
    state.counts[RUNNING] = running_count


@jit
def start_job(jobs: Jobs, state: BatchState, row: int) -> None:
    """Give it nodes; the caller takes it out of the queue."""
    state.start[row] = state.counts[NOW]
    state.running[state.counts[RUNNING]] = row
    state.started[state.counts[STARTED]] = row
    state.counts[RUNNING] += 1
    state.counts[STARTED] += 1
    state.counts[FREE] -= jobs.nodes[row]


@jit
def start_heads(jobs: Jobs, state: BatchState) -> None:
    """Start the first jobs of the queue, up to the first that does not fit."""
    count = state.counts[PENDING]
    heads = 0
    while heads < count and jobs.nodes[state.pending[heads]] <= state.counts[FREE]:
        start_job(jobs, state, state.pending[heads])
        heads += 1
    if heads:
        state.pending[: count - heads] = state.pending[heads:count].copy()
        state.counts[PENDING] = count - heads


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


@jit
def backfill(jobs: Jobs, state: BatchState) -> None:
    """Plan the whole queue; start those whose place is now."""
    free = plan_free_nodes(jobs, state)
    count = state.counts[PENDING]
    pending_count = 0
    for place in range(count):
        row = state.pending[place]
        first = NOBODY
        if place < MOST_TESTED and free[0] > 0:  # without free nodes nobody starts now
            length = -(-jobs.limit[row] // SLOT_TICKS)
            first = reserve_place(free, jobs.nodes[row], length)
        if first == 0:
            start_job(jobs, state, row)
        else:
            state.pending[pending_count] = row
            pending_count += 1
    state.counts[PENDING] = pending_count


@jit
def next_tick(jobs: Jobs, state: BatchState) -> int:
    """The next tick at which a job arrives, ends or could start."""
    now = state.counts[NOW]
    tick = NEVER
    if state.counts[ARRIVED] < jobs.last:
        tick = jobs.submit[state.counts[ARRIVED]]
    for place in range(state.counts[RUNNING]):
        row = state.running[place]
        tick = min(tick, state.start[row] + jobs.run[row])
    if state.counts[PENDING] > 0 and state.counts[FREE] > 0:
        tick = min(tick, (now // PASS_EVERY + 1) * PASS_EVERY)
    return int(max(tick, now + 1))


@jit
def schedule(jobs: Jobs, state: BatchState) -> None:
    """What the scheduler does at this tick."""
    if state.counts[PENDING] == 0:
        return
    if state.counts[NOW] % PASS_EVERY == 0:
        backfill(jobs, state)
    else:
        start_heads(jobs, state)


@jit
def advance(jobs: Jobs, state: BatchState, until: int, awaited: int) -> int:
    """Go on to a tick, without working on it, or until the job `awaited` has started.

    Returns the next tick to work on; NEVER when nothing can happen any more.
    """
    while state.counts[NOW] < until:
        end_jobs(jobs, state)
        admit_arrivals(jobs, state)
        schedule(jobs, state)
        tick = next_tick(jobs, state)
        state.counts[NOW] = min(tick, until)
        if tick == NEVER or (awaited != NOBODY and state.start[awaited] != NEVER):
            break
    return int(state.counts[NOW])
