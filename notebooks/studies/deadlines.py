"""Deadlines on real traces: ElasticFlow's table, and the ladder of ever smaller clusters.

The table: published cluster sizes, ElasticFlow's own costs, perfect predictions, beside the bound
that counts contention. The ladder: pooled GPUs, 60 s per restart, perfect predictions, and each
share policy with promises given greedily or not at all; EDF, Chronus and the QoS framework as
published. Nothing is random, so one run is enough.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from laxity_lab.simulate.run import Setting
from studies.datasets import TRACE_FILES, Datasets
from studies.study_rows import Trial, linear_program_trial, simulation_trial

TABLE: Final = ("195job", "elasticVpollux_e", "10", "01", "03", "05", "02", "04")
SHARES: Final = ("elasticflow", "edf_elastic")
RUNGS: Final = {  # GPUs by trace
    "195job": (128, 64, 32, 16),
    "10": (256, 64, 32),
    "01": (512, 128, 64, 32, 16),
    "05": (512, 128, 64),
    "02": (512, 128, 64),
    "03": (512, 256, 128, 64),
    "04": (1024, 256, 128),
}
ADMISSIONS: Final = ("none", "greedy")
SAMPLE_RUNGS: Final = (128, 64)
SMALL: Final = ("195job", "10")  # for policies that solve or decide anew at every event
RESTART_S: Final = 60.0
SLOT_S: Final = 60.0  # ElasticFlow's: jobs change their width at its end, so epochs are as long


def table_trials(datasets: Datasets, _seeds: Sequence[int]) -> list[Trial]:
    """Each trace on its own cluster."""
    trials = []
    for name in datasets.having(TABLE):
        trace_file, case = TRACE_FILES[name], datasets.source(name)
        nodes = trace_file.gpus // trace_file.gpus_per_node
        trials.append(
            linear_program_trial(case, gpus=trace_file.gpus, part="published size", trace=name)
        )
        for policy in (*SHARES, "edf"):
            setting = Setting(
                policy, nodes, trace_file.gpus_per_node, cost_model="elasticflow", epoch_s=SLOT_S
            )
            trials.append(simulation_trial(case, setting, part="published size", trace=name))
    return trials


def ladder_trials(datasets: Datasets, _seeds: Sequence[int]) -> list[Trial]:
    """Each trace on each of its clusters, small traces first; the bounds, which take longest, last."""
    rungs = [
        (name, gpus)
        for name in datasets.having(list(RUNGS))
        for gpus in (SAMPLE_RUNGS if datasets.samples else RUNGS[name])
    ]
    runs = [trial for name, gpus in rungs for trial in _rung_trials(datasets, name, gpus)]
    return runs + [
        linear_program_trial(datasets.source(name), gpus=gpus, part="ladder", trace=name)
        for name, gpus in rungs
    ]


def _rung_trials(datasets: Datasets, name: str, gpus: int) -> Iterator[Trial]:
    case = datasets.source(name)
    for policy, admission in _rung_policies(name, samples=datasets.samples):
        setting = Setting(
            policy,
            gpus // 8,
            8,
            pooled=True,
            restart_s=RESTART_S,
            admission=admission,
            epoch_s=SLOT_S,
        )
        yield simulation_trial(case, setting, part="ladder", trace=name)


def _rung_policies(name: str, *, samples: bool) -> Iterator[tuple[str, str | None]]:
    yield from ((policy, admission) for policy in SHARES for admission in ADMISSIONS)
    yield "edf", None
    if name in SMALL and not samples:
        yield "chronus", None
        yield "qos", None
