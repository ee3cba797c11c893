"""The supervised phase: a net that decides as its teacher, from simulated clusters of several loads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from laxity_lab.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_lab.policy_training.teacher_samples import Choice, collect_choices, share_right
from laxity_lab.traces.throughput_tables import Tables
from laxity_scheduler.learned.scoring_net import ScoringNet

NODES: Final = (1, 2, 4, 8)  # of 8 GPUs
GPUS_PER_NODE: Final = 8
LOADS: Final = (0.4, 0.7, 1.0, 1.4)
JOBS: Final = 50
HELD_OUT: Final = 10_000  # added to the seed


@dataclass(frozen=True, slots=True)
class Imitation:
    """A net, among how many choices it was right on worlds held out, and on how many it learned."""

    net: ScoringNet
    right: float
    choices: int


def learn_from_teacher(
    tables: Tables,
    teacher: str,
    *,
    seed: int,
    updates: int = 1_500,
    worlds: int = 2,
    jobs: int = JOBS,
    tell: Callable[[int], None] = lambda _: None,
) -> Imitation:
    """Of each size and load `worlds` worlds of `jobs` jobs; one of another seed is held out."""
    from laxity_lab.policy_training import torch_net

    choices = [
        choice
        for number in range(worlds)
        for choice in collect_worlds(tables, teacher, seed + number, jobs)
    ]
    held_out = collect_worlds(tables, teacher, seed + HELD_OUT, jobs)
    layers = torch_net.make_net(seed)
    torch_net.imitate(layers, choices, updates=updates, seed=seed, tell=tell)
    net = torch_net.read_net(layers)
    return Imitation(net, share_right(net, held_out), len(choices))


def collect_worlds(tables: Tables, teacher: str, seed: int, jobs: int = JOBS) -> list[Choice]:
    """A teacher's choices in one world of each size and load."""
    return [
        choice
        for nodes in NODES
        for load in LOADS
        for choice in collect_choices(
            make_trace(tables, ArrivalMix(jobs, nodes * GPUS_PER_NODE, load), seed=seed),
            teacher,
            nodes=nodes,
            gpus_per_node=GPUS_PER_NODE,
            seed=seed,
        )
    ]
