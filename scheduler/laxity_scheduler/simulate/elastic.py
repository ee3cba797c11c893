"""A share policy over a trace of elastic jobs, without rows: the arrays are kept between events.

The policy as `decide(state, predictor)` and this loop call the same `shares_loop.allocate`.
"""

import time
from collections.abc import Sequence

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.shares import ShareRule
from laxity_scheduler.simulate.costs import ROUNDS_BETWEEN_RESTARTS, Costs
from laxity_scheduler.simulate.outcome import Run, filled
from laxity_scheduler.simulate.replay import asked_columns
from laxity_scheduler.simulate.truth import Truth, error_factor, sigma_of

NAMES = (
    "first_start_at",
    "finished_at",
    "running_s",
    "gpu_s",
    "lost_gpu_s",
    "preemptions",
    "resizes",
    "promised_at",
)


def runs_without_rows(jobs: Sequence[Truth], costs: Costs) -> bool:
    """Whether the loop is exact here: workers of one GPU, and nothing waits for an epoch's end."""
    return not costs.at_boundaries and all(
        job.gpus_per_worker == 1 or len(job.widths) == 1 for job in jobs
    )


def run_rule(
    rule: ShareRule,
    trace: str,
    jobs: Sequence[Truth],
    costs: Costs,
    *,
    gpus: int,
    error: float = 0.0,
    seed: int = 0,
) -> Run:
    """Simulate. The arrays are built first; `cpu_s` counts the loop alone."""
    from laxity_scheduler.simulate.elastic_loop import run_shares

    deepest = max((len(job.widths) for job in jobs), default=1)
    many = len(jobs)
    total = np.full((many, deepest), np.inf)
    change = np.zeros((many, deepest))
    width = np.full((many, deepest), 1 << 40, dtype=np.int64)
    for row, job in enumerate(jobs):
        for level, workers in enumerate(job.widths):
            held = workers * job.gpus_per_worker
            total[row, level] = job.epochs * job.epoch_s[workers]
            change[row, level] = costs.start_s(held)
            width[row, level] = held
    sigma = sigma_of(error)
    factor = np.array([error_factor(job.id, sigma=sigma, seed=seed) for job in jobs])
    count = np.array([len(job.widths) for job in jobs], dtype=np.int64)
    epochs = np.array([job.epochs for job in jobs], dtype=np.int64)
    asked = asked_columns(jobs)
    out = np.zeros((many, 8))
    out[:, [0, 1, 7]] = np.inf
    state = np.zeros(many, dtype=np.int64)
    busy = np.zeros((200 * many + 1_000, 2))

    def through(jobs_in: int) -> tuple[int, int]:
        return run_shares(
            asked["submitted_at"][:jobs_in],
            asked["deadline_at"][:jobs_in],
            total[:jobs_in],
            width[:jobs_in],
            count[:jobs_in],
            change[:jobs_in],
            factor[:jobs_in],
            epochs[:jobs_in],
            float(gpus),
            rule.order_number,
            rule.admission_number,
            int(rule.reserves),
            rule.kappa,
            rule.steep,
            rule.surplus_number,
            int(rule.hopeless_last),
            rule.careful,
            rule.replans,
            int(rule.drops),
            costs.round_s,
            costs.restart_s,
            ROUNDS_BETWEEN_RESTARTS if costs.round_s else 0,
            out,
            state,
            busy,
        )

    through(0)  # loads or compiles the loop
    began = time.process_time()
    events, rows = through(many)
    cpu_s = time.process_time() - began
    known: dict[str, Floats] = {name: out[:, place].copy() for place, name in enumerate(NAMES)}
    return Run(
        policy=rule.name,
        trace=trace,
        gpus=gpus,
        ids=[job.id for job in jobs],
        columns=filled(many, **asked, **known),
        refused={int(row): "capacity_promised_to_others" for row in np.flatnonzero(state == 2)},
        cpu_s=cpu_s,
        events=events,
        busy=[(float(at), int(held)) for at, held in busy[:rows]],
        models=[job.model for job in jobs],
    )
