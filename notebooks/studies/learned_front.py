"""Deadlines met against completion times: the learned policy, by either reward, beside others.

The jobs of the study `learned` with deadlines of 1.2 to 3 times the run time at the width asked for, at
a load of 0.9. Rewards: `jct` are the weights that ship; `deadlines` are these after `STEPS` steps of
evolution on the A100 tables, in worlds of 20 jobs, that count missed deadlines. Each with no promises,
and with greedy ones in front. Costs are `live`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from laxity_lab.policy_training.evolution import evolve
from laxity_lab.policy_training.made_jobs import ArrivalMix
from laxity_lab.policy_training.training_worlds import TIGHTNESS, WorldKinds
from laxity_lab.simulate.run import Setting
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.learned.weights_file import SHIPPED, TrainedPolicy, load_policy, save_policy
from studies.datasets import Datasets
from studies.learned_study import (
    GPUS_PER_NODE,
    JOBS,
    NODES,
    TableJobs,
    read_tables,
)
from studies.study_rows import Row, Trial, simulation_row, simulation_trial

LOAD: Final = 0.9
POLICIES: Final = ("fifo", "drf", "srtf", "optimus", "qos")
ADMISSIONS: Final = ("none", "greedy")
STEPS, SEED = 10, 1
KEPT: Final = (
    "jobs",
    "finished",
    "refused",
    "deadlines_met",
    "deadline_met_ratio",
    "promises",
    "promises_broken",
    "avg_jct_s",
)


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each policy with each seed; in small on the A100 tables that ship, after one step."""
    tables = datasets.folder / "elasticflow" / "throughputs_A100"
    hardware = "A100" if datasets.samples else "T4"
    mix = ArrivalMix(
        10 if datasets.samples else JOBS,
        NODES * GPUS_PER_NODE,
        LOAD,
        tightness=TIGHTNESS["deadlines"],
    )
    steps = 1 if datasets.samples else STEPS
    return [
        trial
        for seed in seeds
        for trial in _world_trials(
            TableJobs(tables.with_name(f"throughputs_{hardware}"), None, mix, seed),
            f"{hardware}, generated",
            partial(train_for_deadlines, tables, steps),
        )
    ]


def _world_trials(case: TableJobs, trace: str, train: Callable[[], ScoringNet]) -> Iterator[Trial]:
    part = f"load {LOAD:g}"
    for policy in POLICIES:
        setting = make_setting(policy, case.seed)
        yield simulation_trial(case, setting, part=part, trace=trace, figures=KEPT)
    for admission in ADMISSIONS:
        setting = replace(make_setting("learned", case.seed), admission=admission)
        shipped = simulation_trial(
            case, setting, part=part, trace=trace, figures=KEPT, variant="jct"
        )
        yield shipped
        labels = {**shipped.labels, "variant": "deadlines"}
        yield Trial(labels, partial(_row_of_net, case, setting, train))


def make_setting(policy: str, seed: int) -> Setting:
    return Setting(policy, NODES, GPUS_PER_NODE, cost_model="live", seed=seed)


def _row_of_net(case: TableJobs, setting: Setting, train: Callable[[], ScoringNet]) -> Row:
    with TemporaryDirectory() as folder:
        weights = Path(folder) / "deadlines.npz"
        save_policy(TrainedPolicy(train()), weights)
        return simulation_row(case, replace(setting, policy=f"learned:{weights}"), KEPT)


@lru_cache(maxsize=1)
def train_for_deadlines(tables: Path, steps: int) -> ScoringNet:
    """The net that is best on validation worlds with deadlines."""
    start = load_policy(SHIPPED).net
    kinds = WorldKinds(jobs=20, exponents=(1.0,))
    trained = evolve(
        read_tables(tables), start, seed=SEED, rounds=steps, reward="deadlines", kinds=kinds
    )
    return trained.best
