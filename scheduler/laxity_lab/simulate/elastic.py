"""A share policy over a trace of elastic jobs, without rows: the arrays are kept between events.

The policy as `decide(state, predictor)` and this loop call the same `shares.share_loop.allocate`. It stays
beside the literal cycle for speed alone: docs/measurements/speed.md has what one way would cost.

Where it comes apart from the literal cycle, though deadlines met are the same nearly always (a test
bounds both):

- the loop carries out shrinking and growth of one decision at once. A plan may only spend GPUs that
  are free in its snapshot, so the cycle shrinks, looks again at the same instant and decides on rows
  that have changed meanwhile: who has just been stopped or narrowed ranks as such
- the loop knows the exact share that is done; the cycle is told whole epochs and takes the running
  one to be at most 99 % done
- prices: the loop takes the median plan of the latest newcomers, the policy that of the jobs in sight
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from laxity_lab.simulate.progress import Ended, nobody
from laxity_lab.simulate.replay import join_columns, request_columns
from laxity_lab.world.outcome import RESULTS, Run, empty_results
from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.shares.rows import NOBODY
from laxity_scheduler.shares.rule import ShareRule
from laxity_scheduler.shares.share_arrays import TURNED_AWAY
from laxity_scheduler.simulated.change_costs import ROUNDS_BETWEEN_RESTARTS, Costs
from laxity_scheduler.simulated.ground_truth import GroundTruth

if TYPE_CHECKING:
    from laxity_lab.simulate.elastic_loop import Asked

ENDED_AT = RESULTS.index("finished_at")
CHUNK = 200  # events between two looks at how far it has come


def runs_without_rows(jobs: Sequence[GroundTruth], costs: Costs) -> bool:
    """Whether the loop is exact here: workers of one GPU, and nothing waits for an epoch's end."""
    return not costs.at_boundaries and all(
        job.gpus_per_worker == 1 or len(job.widths) == 1 for job in jobs
    )


def run_rule(
    rule: ShareRule,
    trace: str,
    jobs: Sequence[GroundTruth],
    costs: Costs,
    *,
    gpus: int,
    factors: Sequence[float],
    ended: Ended = nobody,
) -> Run:
    """Simulate; `factors` are believed over true durations, (n,).

    The arrays are built first; `cpu_s` counts the loop alone.
    """
    from laxity_lab.simulate.elastic_loop import Pace, beginning, run_shares

    job_count = len(jobs)
    requests = build_asked(jobs, costs, factors)
    rounds = ROUNDS_BETWEEN_RESTARTS if costs.round_s else 0
    pace = Pace(costs.round_s, costs.restart_s, rounds, rule.kappa)
    how = rule.on(float(gpus))
    out = empty_results(job_count)
    state = np.zeros(job_count, dtype=np.int64)
    none = build_asked((), costs, ())
    few = np.zeros((1, 2))
    run_shares(none, how, pace, beginning(0, out, state), few)  # loads or compiles the loop
    began = time.process_time()
    live, busy = beginning(job_count, out, state), [np.zeros((0, 2))]
    chunk = np.empty((CHUNK, 2))
    while rows := run_shares(requests, how, pace, live, chunk):
        busy.append(chunk[:rows].copy())
        ended(_over(out, state, drops=rule.drops))
    cpu_s = time.process_time() - began
    return Run(
        policy=rule.name,
        trace=trace,
        gpus=gpus,
        ids=[job.id for job in jobs],
        columns=join_columns(jobs, out),
        refused={
            int(row): "capacity_promised_to_others" for row in np.flatnonzero(state == TURNED_AWAY)
        },
        cpu_s=cpu_s,
        events=sum(map(len, busy)),
        busy=[(float(instant), int(held)) for instant, held in np.concatenate(busy)],
    )


def _over(out: Floats, state: Ints, *, drops: bool) -> int:
    """How many jobs have ended, or were turned away for good."""
    over = np.isfinite(out[:, ENDED_AT])
    return int(np.count_nonzero(over | (state == TURNED_AWAY) if drops else over))


def build_asked(jobs: Sequence[GroundTruth], costs: Costs, factors: Sequence[float]) -> "Asked":
    """The jobs as arrays."""
    from laxity_lab.simulate.elastic_loop import Asked

    deepest = max((len(job.widths) for job in jobs), default=1)
    total = np.full((len(jobs), deepest), np.inf)
    change = np.zeros((len(jobs), deepest))
    width = np.full((len(jobs), deepest), NOBODY, dtype=np.int64)
    for row, job in enumerate(jobs):
        for level, workers in enumerate(job.widths):
            held = workers * job.gpus_per_worker
            total[row, level] = job.epochs * job.epoch_s[workers]
            change[row, level] = costs.start_s(held)
            width[row, level] = held
    requests = request_columns(jobs)
    return Asked(
        submitted=requests["submitted_at"],
        deadline=requests["deadline_at"],
        hard=np.array([job.service_class == "hard" for job in jobs], dtype=np.int64),
        total=total,
        width=width,
        levels=np.array([len(job.widths) for job in jobs], dtype=np.int64),
        change=change,
        factor=np.array(factors, dtype=np.float64),
        epochs=np.array([job.epochs for job in jobs], dtype=np.int64),
    )
