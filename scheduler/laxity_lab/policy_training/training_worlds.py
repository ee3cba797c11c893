"""The clusters that a net is improved in, and those that say how good it has become.

Curves are varied as well (our own): a net that has seen one kind of hardware only takes its curves for
the law. The speeds of a varied curve are the measured ones, relative to the least width, to the power e.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple, Protocol

import numpy as np

from laxity_lab.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_lab.policy_training.slot_environment import Reward, WorldOutcome, run_in_slots
from laxity_lab.traces.throughput_tables import Tables, ThroughputTable
from laxity_lab.traces.traces import Trace, TraceJob
from laxity_scheduler.learned.scoring_net import ScoringNet

JOBS: Final = 40
SIZES: Final = (8, 16, 32, 64)
LOADS: Final = (0.5, 0.7, 0.9, 1.1, 1.4)
EXPONENTS: Final = (0.6, 1.2)  # of the speed-ups, drawn evenly between
VALIDATION_SEEDS: Final = range(20_000, 20_003)
VALIDATION_LOADS: Final = (0.5, 0.8, 1.1)
VALIDATION_EXPONENTS: Final = (0.75, 1.0, 1.15)
VALIDATION_GPUS: Final = 16
TIGHTNESS: Final[Mapping[Reward, tuple[float, float] | tuple[()]]] = {
    "jct": (),
    "deadlines": (1.2, 3.0),  # as the QoS framework's jobs (algorithms.md 3.6)
}
JCT_WEIGHT: Final = 0.05
OTHER_SHARE: Final = 0.5  # of training worlds, where there are other arrivals
ROUNDS_BETWEEN_TRIALS: Final = 10

World = tuple[Sequence[TraceJob], int]  # jobs, and the GPUs of their cluster


class Arrivals(Protocol):
    """Jobs of tables that arrive otherwise than generated ones, such as those of a real trace."""

    def __call__(self, tables: Tables, mix: ArrivalMix, *, seed: int) -> Trace: ...


@dataclass(frozen=True, slots=True)
class WorldKinds:
    """How many jobs a world has, and how they arrive.

    Every second training world has one of the arrivals of `training`; each of `validation` judges
    beside generated arrivals, at each of `exponents`.
    """

    training: Sequence[Arrivals] = ()
    validation: Sequence[Arrivals] = ()
    jobs: int = JOBS
    exponents: Sequence[float] = VALIDATION_EXPONENTS


USUAL: Final = WorldKinds()


class Improvement(NamedTuple):
    """The best net of those tried, what each cost on the validation worlds, and the actions it took."""

    best: ScoringNet
    costs: list[float]
    actions: int


def keep_best(
    start: ScoringNet,
    rounds: Iterator[tuple[ScoringNet, int]],
    count: int,
    judge: Callable[[ScoringNet], float],
    tell: Callable[[int], None],
) -> Improvement:
    """The best net of those tried, every tenth and `start` itself, by what `judge` says it costs.

    `rounds` gives the net after each and how many actions it took; so many count.
    """
    best, costs, actions = start, [judge(start)], 0
    for number, (net, taken) in enumerate(islice(rounds, count), start=1):
        actions += taken
        if number % ROUNDS_BETWEEN_TRIALS == 0:
            costs.append(judge(net))
            best = net if costs[-1] == min(costs) else best
        tell(1)
    return Improvement(best, costs, actions)


def draw_world(
    tables: Tables,
    draw: np.random.Generator,
    reward: Reward = "jct",
    kinds: WorldKinds = USUAL,
) -> World:
    """Jobs with varied curves, with deadlines where these are rewarded, and the GPUs of their cluster."""
    varied = {
        key: vary_curve(table, float(draw.uniform(*EXPONENTS))) for key, table in tables.items()
    }
    mix = ArrivalMix(
        kinds.jobs, int(draw.choice(SIZES)), float(draw.choice(LOADS)), tightness=TIGHTNESS[reward]
    )
    seed = int(draw.integers(10_000))
    if kinds.training and draw.random() < OTHER_SHARE:
        arrive = kinds.training[int(draw.integers(len(kinds.training)))]
        return arrive(varied, mix, seed=seed).jobs, mix.gpus
    return make_trace(varied, mix, seed=seed).jobs, mix.gpus


def vary_curve(table: ThroughputTable, exponent: float) -> ThroughputTable:
    """The same widths and the same speed at the least one; above 1 it scales better."""
    least = table.iterations_per_s[0]
    speeds = [least * (speed / least) ** exponent for speed in table.iterations_per_s]
    return replace(table, iterations_per_s=tuple(speeds))


def validate(
    tables: Tables, net: ScoringNet, reward: Reward = "jct", kinds: WorldKinds = USUAL
) -> float:
    """The net's mean cost on the validation worlds, less is better: see `mean_cost`."""
    return mean_cost(tables, lambda jobs, gpus: run_in_slots(jobs, gpus, net), reward, kinds)


def mean_cost(
    tables: Tables,
    run_world: Callable[[Sequence[TraceJob], int], WorldOutcome],
    reward: Reward = "jct",
    kinds: WorldKinds = USUAL,
) -> float:
    """Mean JCT relative to the run time at the width asked for, over the validation worlds.

    Of `deadlines`: the share of jobs that were late, and a little of the former.
    """
    costs = []
    for jobs, gpus in make_validation_worlds(tables, reward, kinds):
        outcome = run_world(jobs, gpus)
        slowdown = outcome.mean_jct_s / float(np.mean([job.duration_s for job in jobs]))
        late = reward == "deadlines"
        costs.append(outcome.missed + JCT_WEIGHT * slowdown if late else slowdown)
    return float(np.mean(costs))


def compute_gain(after: WorldOutcome, before: WorldOutcome, reward: Reward) -> float:
    """How much better a world went than before; shorter jobs decide where as many are late."""
    shorter = -float(np.log(after.mean_jct_s / before.mean_jct_s))
    if reward == "deadlines":
        return before.missed - after.missed + JCT_WEIGHT * shorter
    return shorter


def make_validation_worlds(
    tables: Tables, reward: Reward = "jct", kinds: WorldKinds = USUAL
) -> Iterator[World]:
    """A world for each exponent, seed and load; as many again with each of the other arrivals."""
    for exponent in kinds.exponents:
        varied = {key: vary_curve(table, exponent) for key, table in tables.items()}
        for seed in VALIDATION_SEEDS:
            for load in VALIDATION_LOADS:
                mix = ArrivalMix(kinds.jobs, VALIDATION_GPUS, load, tightness=TIGHTNESS[reward])
                yield make_trace(varied, mix, seed=seed).jobs, mix.gpus
                for arrive in kinds.validation:
                    yield arrive(varied, mix, seed=seed).jobs, mix.gpus
