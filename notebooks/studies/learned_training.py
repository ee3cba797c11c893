"""What each part of training the learned policy is worth, over seeds: curves on the validation worlds.

A row is one training of `ROUNDS` episodes (gradients) or `STEPS` steps (evolution) on the A100 tables
with varied curves, smaller than that of the weights that ship. Arrivals are generated, or those of ITP
01 to 05; the validation worlds have generated ones and those of ITP 10. Nothing here is a test: nets
are chosen on these worlds.

    full              imitation first, then DL2's gradients: critic, replay, exploration, slot's reward
    best steps        ours: compared with the best-scored steps, no critic, no replay, no exploration
    evolution         ours, the default of `laxity train policy`
    weights that ship 60 steps of it, from imitation, in worlds of 40 jobs with generated arrivals

The others are `full` with one part left out or changed, or start from random weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from laxity_lab.policy_training.evolution import evolve
from laxity_lab.policy_training.reinforcement import reinforce
from laxity_lab.policy_training.training_worlds import WorldKinds, validate
from laxity_lab.traces.cases import Source
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.learned.weights_file import SHIPPED, load_policy
from laxity_scheduler.service.learned_models import TEACHER
from studies.datasets import Datasets
from studies.dl2_gradients import DL2, OURS, GradientParts, PartsLearner
from studies.learned_study import read_tables
from studies.real_arrivals import borrow_arrivals
from studies.study_rows import Row, Trial

TRAINING: Final = ("01", "02", "03", "04", "05")
VALIDATION: Final = ("10",)
UPDATES, WORLDS = 300, 1  # of imitation
JOBS, TEACHER_JOBS = 20, 50  # of a world
ROUNDS: Final = 60
STEPS: Final = 30
BATCH: Final = 64  # worlds are small: more updates from as many actions


FULL: Final = replace(DL2, batch=BATCH)
BEST: Final = replace(OURS, batch=BATCH)


@dataclass(frozen=True, slots=True)
class TrainingVariant:
    """How a net is made: from a teacher or from random weights, and by gradients or by evolution."""

    parts: GradientParts | None = FULL
    warm_up: bool = True


VARIANTS: Final[Mapping[str, TrainingVariant]] = {
    "full": TrainingVariant(),
    "no warm-up": TrainingVariant(warm_up=False),
    "no exploration": TrainingVariant(replace(FULL, exploration=0.0, entropy=0.0)),
    "no replay": TrainingVariant(replace(FULL, replay=0)),
    "no critic": TrainingVariant(replace(FULL, baseline="none")),
    "reward per job": TrainingVariant(replace(FULL, per_job=True)),
    "best steps": TrainingVariant(BEST),
    "best steps, no warm-up": TrainingVariant(BEST, warm_up=False),
    "evolution": TrainingVariant(None),
    "evolution, no warm-up": TrainingVariant(None, warm_up=False),
}


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Tables, and the traces whose arrivals train and judge."""

    tables: Path
    training: tuple[Source, ...]
    validation: tuple[Source, ...]
    jobs: int = JOBS
    teacher_jobs: int = TEACHER_JOBS
    rounds: int = ROUNDS
    steps: int = STEPS


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each variant with each seed; in small two of them, for a few episodes."""
    tables = datasets.folder / "elasticflow" / "throughputs_A100"
    training, validation = (
        tuple([datasets.source(name) for name in datasets.having(names)])
        for names in (TRAINING, VALIDATION)
    )
    data = TrainingData(tables, training, validation)
    names = list(VARIANTS)
    if datasets.samples:
        data = replace(data, jobs=5, teacher_jobs=10, rounds=10)
        names = ["full", "no warm-up"]
    return [
        Trial(
            {"part": "training", "policy": "learned", "variant": name, "seed": seed},
            partial(_training_row, data, VARIANTS[name], seed),
        )
        for seed in seeds
        for name in names
    ] + [
        Trial(
            {"part": "training", "policy": "learned", "variant": "weights that ship"},
            partial(_shipped_row, data),
        )
    ]


def _training_row(data: TrainingData, variant: TrainingVariant, seed: int) -> Row:
    from laxity_lab.policy_training.torch_net import make_random_net

    start = imitate(data, seed) if variant.warm_up else make_random_net(seed)
    tables, kinds = read_tables(data.tables), read_kinds(data)
    if variant.parts is None:
        trained = evolve(tables, start, seed=seed, rounds=data.steps, kinds=kinds)
    else:
        learner = PartsLearner(start, variant.parts, seed=seed)
        trained = reinforce(
            tables, start, seed=seed, rounds=data.rounds, kinds=kinds, learner=learner
        )
    return {"actions": trained.actions, **name_checkpoints(trained.costs)}


@lru_cache(maxsize=1)
def read_kinds(data: TrainingData) -> WorldKinds:
    """The worlds of this study."""
    training, validation = (
        [partial(borrow_arrivals, source.load()) for source in sources]
        for sources in (data.training, data.validation)
    )
    return WorldKinds(training, validation, jobs=data.jobs, exponents=(1.0,))


def name_checkpoints(costs: Sequence[float]) -> Row:
    """`cost_at_N`, N: per cent of the training; and by how much the last one is above the best."""
    last = max(1, len(costs) - 1)
    row: Row = {f"cost_at_{100 * place // last}": cost for place, cost in enumerate(costs)}
    return row | {"best_cost": min(costs), "last_to_best": costs[-1] / min(costs)}


@lru_cache(maxsize=8)
def imitate(data: TrainingData, seed: int) -> ScoringNet:
    """The warm-up, which variants share."""
    from laxity_lab.policy_training.imitation import learn_from_teacher

    return learn_from_teacher(
        read_tables(data.tables),
        TEACHER,
        seed=seed,
        updates=UPDATES,
        worlds=WORLDS,
        jobs=data.teacher_jobs,
    ).net


def _shipped_row(data: TrainingData) -> Row:
    """What the weights that ship cost in the validation worlds."""
    net = load_policy(SHIPPED).net
    return {"best_cost": validate(read_tables(data.tables), net, kinds=read_kinds(data))}
