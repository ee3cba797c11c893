"""A batch cluster through time, event by event, as Slurm's scheduler plans it.

Time is counted in ticks (minutes) since the simulation began. A job's rank is its priority at
tick 0: all waiting jobs age alike, so the order of the queue never changes. At most ticks the
scheduler starts the head of the queue while it fits. Every `PASS_EVERY` ticks it makes a whole
backfill pass: each job, in order, takes the earliest place in the plan that its nodes and its time
limit leave; those whose place is now start. Only ticks where something can change are visited.
"""

from typing import Final

from laxity_scheduler.chains.queue_plan import (
    ARRIVED,
    FREE,
    MOST_TESTED,
    NEVER,
    NOBODY,
    NOW,
    PENDING,
    RUNNING,
    SLOT_TICKS,
    STARTED,
    BatchState,
    Jobs,
    plan_free_nodes,
    reserve_place,
)
from laxity_scheduler.frame.compiled import jit

PASS_EVERY: Final = 10  # ticks between two backfill passes, as in Mirage's released simulator


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
