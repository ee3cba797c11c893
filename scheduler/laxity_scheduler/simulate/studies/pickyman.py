"""PickyMan's claims: waiting -10 to -92 %, makespan up to -14 %, against existing methods.

Its baselines, jobs and cluster are not public. Ours: windows of consecutive jobs of real traces
(waiting), and closed batches of jobs drawn from them and submitted within an hour (waiting,
makespan), on clusters that are short of GPUs; stops and starts cost what `live` says; predictions
are off by 10 % on average, as the paper says of its own. `pickyman_blind` believes that a stop
costs nothing: the ablation.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from laxity_scheduler.division import Victim, exact_cover, greedy_cover
from laxity_scheduler.order import Packing
from laxity_scheduler.simulate.run import Setting
from laxity_scheduler.simulate.studies.cases import Batch, Case, Window
from laxity_scheduler.simulate.studies.shelf import BOOKS, Shelf
from laxity_scheduler.simulate.studies.trial import Row, Trial, simulated

POLICIES: Final[Sequence[tuple[str, Packing]]] = (
    ("fifo", "skip"),
    ("fifo", "strict"),
    ("srtf", "skip"),
    ("las", "skip"),
    ("pickyman", "skip"),
    ("pickyman_blind", "skip"),
)
ERROR: Final = 0.1
NODES: Final = {"philly": 16, "03": 16, "195job": 8}
CANDIDATES: Final = (8, 12, 20)
WIDEST: Final = 8


def trials(shelf: Shelf, seeds: Sequence[int]) -> list[Trial]:
    """Open windows and closed batches of each trace, each policy, each seed."""
    jobs = 60 if shelf.samples else 500
    names = shelf.having(["195job"] if shelf.samples else list(NODES))
    return [
        simulated(case, _setting(name, policy, packing, seed), part=part, trace=name)
        for name in names
        for seed in seeds
        for part, case in _cases(shelf, name, jobs, seed)
        for policy, packing in POLICIES
    ]


def _cases(shelf: Shelf, name: str, jobs: int, seed: int) -> Sequence[tuple[str, Case]]:
    source = shelf.source(name)
    return (("open", Window(source, jobs, seed)), ("closed", Batch(source, jobs, seed)))


def _setting(name: str, policy: str, packing: Packing, seed: int) -> Setting:
    return Setting(
        policy,
        NODES[name],
        BOOKS[name].gpus_per_node,
        cost_model="live",
        error=ERROR,
        seed=seed,
        packing=packing,
    )


def covers(shelf: Shelf, seeds: Sequence[int]) -> list[Trial]:
    """Random sets of running jobs, widths 1 to 8, log-normal costs: greedy against exact."""
    many = 50 if shelf.samples else 1_000
    return [
        Trial(
            {"part": f"{size} candidates", "policy": "greedy", "seed": seed},
            partial(_covers, size, many, seed),
        )
        for size in CANDIDATES
        for seed in seeds
    ]


def _covers(size: int, many: int, seed: int) -> Row:
    draw = np.random.default_rng([seed, size])
    ratios = []
    for _ in range(many):
        victims = [
            Victim(str(row), int(draw.integers(1, WIDEST + 1)), float(draw.lognormal()))
            for row in range(size)
        ]
        need = int(draw.integers(1, WIDEST + 1))
        best = sum(victim.cost_s for victim in exact_cover(victims, need))
        ratios.append(sum(victim.cost_s for victim in greedy_cover(victims, need)) / best)
    return {
        "instances": many,
        "cost_ratio": float(np.mean(ratios)),
        "worst_ratio": float(np.max(ratios)),
        "optimal_share": float(np.mean(np.asarray(ratios) <= 1.0 + 1e-9)),
    }
