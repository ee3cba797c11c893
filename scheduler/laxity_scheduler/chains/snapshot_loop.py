"""One look at a simulated queue, as numbers; a loop that numba compiles.

Of Mirage's 42 features a snapshot has the 29 that vary and that are not about the pair: 12 of the
pending queue (jobs; nodes; time limit and age at 0/25/50/75/100 %) and 17 of the running jobs (jobs;
nodes; time limit, past wait and elapsed run at the same percentiles). Left out, since they are
constant within an experiment: five percentiles of the pending jobs' run time (always 0). An empty
list is one 0. Four columns are laxity's own. All times are in minutes.
"""

from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.queue_plan import (
    NEVER,
    NOW,
    PENDING,
    RUNNING,
    SLOT_TICKS,
    SLOTS,
    STARTED,
    TICK_S,
    BatchState,
    Jobs,
    plan_start,
)
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.compiled import jit

MIRAGE_COLUMNS: Final = 29
COLUMNS: Final = 33  # then: planned wait, mean wait of the last 100, node-minutes pending and left
RECENT_JOBS: Final = 100


@jit
def put_percentiles(values: Ints, out: Floats, place: int) -> None:
    """Write minimum, quartiles and maximum, with linear interpolation; nothing for no values."""
    count = len(values)
    if count == 0:
        return
    ordered = np.sort(values)
    for quarter in range(5):
        position = quarter * (count - 1)
        low, rest = position // 4, position % 4
        high = min(low + 1, count - 1)
        out[place + quarter] = ordered[low] + (ordered[high] - ordered[low]) * rest / 4


@jit
def take_snapshot(jobs: Jobs, state: BatchState, nodes: int, limit: int) -> Floats:
    """The columns of now, (COLUMNS,); `nodes` and `limit` in ticks are the successor's."""
    out = np.zeros(COLUMNS)
    now = state.counts[NOW]
    pending = state.pending[: state.counts[PENDING]]
    running = state.running[: state.counts[RUNNING]]
    out[0], out[1] = len(pending), jobs.nodes[pending].sum()
    put_percentiles(jobs.limit[pending], out, 2)
    put_percentiles(now - jobs.submit[pending], out, 7)
    out[12], out[13] = len(running), jobs.nodes[running].sum()
    put_percentiles(jobs.limit[running], out, 14)
    put_percentiles(state.start[running] - jobs.submit[running], out, 19)
    put_percentiles(now - state.start[running], out, 24)
    planned = plan_start(jobs, state, nodes, limit)
    out[29] = SLOTS * SLOT_TICKS if planned == NEVER else planned - now
    first = max(0, state.counts[STARTED] - RECENT_JOBS)
    recent = state.started[first : state.counts[STARTED]]
    if len(recent) > 0:
        out[30] = (state.start[recent] - jobs.submit[recent]).sum() / len(recent)
    out[31] = (jobs.nodes[pending] * jobs.limit[pending]).sum()
    left = np.maximum(0, state.start[running] + jobs.limit[running] - now)
    out[32] = (jobs.nodes[running] * left).sum()
    return out


def recent_mean_s(started_at: Floats, wait_s: Floats, now_at: float) -> float:
    """Mean wait of the last jobs that started up to now, in whole minutes; 0 without any."""
    count = int(np.searchsorted(started_at, now_at, side="right"))
    recent = wait_s[max(0, count - RECENT_JOBS) : count]
    return float(recent.mean() // TICK_S * TICK_S) if len(recent) else 0.0
