"""What each part of loans and scaling is worth: the paper's world, with one part left out or changed.

algorithms.md 4.8 names the parts; the paper states no such rows. Jobs are Philly's; a
seed draws a sample of them, who is elastic, and who may use lent nodes (`loan_world`). A variant is one other function in place of laxity's own (`loan_variants`):

    moves       loans, scaling, both or neither
    reclaim     which lent servers go back, in simulations and on random instances of the paper's shape
    phase 2     who gets the GPUs that base demand leaves
    placement   whether base and flexible workers keep apart on lent nodes
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from laxity_lab.traces.cases import Source
from laxity_scheduler.allocation.surplus import WidthRule
from laxity_scheduler.capacity.pools import PoolLedger, WorkerOrder, keep_apart
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.loans.lending import with_loans
from laxity_scheduler.loans.server_choice import ServerChoice, choose_servers
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.policies.aryl import decide_by, widths_by_knapsack
from studies.datasets import Datasets
from studies.loan_instances import compare_with_optimum
from studies.loan_variants import PLACES, RECLAIMS, WIDTHS
from studies.loan_world import (
    MOVES,
    SMALL_LOAD,
    LoanSize,
    LoanWorld,
    make_world,
    mean_usage,
    run_world,
)
from studies.study_rows import Row, Trial, figures_row

JOBS, LOAD = 2_500, 1.2
SAMPLE_JOBS: Final = 160
INSTANCES: Final = 200  # random reclaims of each seed
ON_INSTANCES: Final = ("random", "fewest jobs", "cost", "exact")  # jobs there have no overhead
FIGURES: Final = (
    "jobs",
    "finished",
    "avg_jct_s",
    "avg_wait_s",
    "p95_wait_s",
    "preemptions",
    "resizes",
    "lost_share",
    "lent_gpus_mean",
    "reclaimed_servers",
    "reclaim_preemptions",
    "preempted_per_reclaimed_server",
    "inference_short_max_s",
    "inference_forecast_coverage",
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What is lent, what scales, and by which functions."""

    lends: bool = True
    scales: bool = True
    reclaim: ServerChoice = choose_servers
    widths: WidthRule = widths_by_knapsack
    order: Callable[[ClusterState], WorkerOrder] = keep_apart


VARIANTS: Final = [
    *(("moves", name, Parts(lends, scales)) for name, (lends, scales) in MOVES.items()),
    *(("reclaim", name, Parts(reclaim=choose)) for name, choose in RECLAIMS.items()),
    *(("phase 2", name, Parts(widths=rule)) for name, rule in WIDTHS.items()),
    *(("placement", name, Parts(order=order)) for name, order in PLACES.items()),
]


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each variant of each part, all others as shipped; the random instances come first."""
    if not datasets.having(["philly"]):
        return []
    source = datasets.source("philly")
    sizes = [
        LoanSize(SAMPLE_JOBS, SMALL_LOAD, seed) if datasets.samples else LoanSize(JOBS, LOAD, seed)
        for seed in seeds
    ]
    return [_instance_trial(name, seed) for seed in seeds for name in ON_INSTANCES] + [
        Trial(
            {"part": part, "trace": "philly", "policy": "aryl", "variant": name, "seed": size.seed},
            partial(_simulation_row, source, size, variant),
        )
        for size in sizes
        for part, name, variant in VARIANTS
    ]


@lru_cache(maxsize=2)
def _world(source: Source, size: LoanSize) -> LoanWorld:
    return make_world(source.load(), size)


@lru_cache(maxsize=32)
def _simulation_row(source: Source, size: LoanSize, parts: Parts) -> Row:
    world = _world(source, size)
    run = run_world(
        world,
        lends=parts.lends,
        scales=parts.scales,
        policy=partial(
            decide_by,
            choose_widths=parts.widths,
            open_ledger=partial(PoolLedger, order=parts.order),
        ),
        finish=partial(with_follow_ups, lend=partial(with_loans, choose=parts.reclaim)),
    )
    return figures_row(run, FIGURES) | {
        "training_nodes": world.training_nodes,
        "inference_nodes": world.inference_nodes,
        "usage_while_submitted": mean_usage(run),
    }


def _instance_trial(name: str, seed: int) -> Trial:
    labels: Row = {"part": "random instances", "variant": name, "seed": seed}
    return Trial(labels, partial(_instance_row, name, seed))


def _instance_row(name: str, seed: int) -> Row:
    drawn = range(seed * INSTANCES, (seed + 1) * INSTANCES)
    stops, fewest = compare_with_optimum(drawn, RECLAIMS[name])
    return {"jobs_stopped": stops / INSTANCES, "fewest_jobs_stopped": fewest / INSTANCES}
