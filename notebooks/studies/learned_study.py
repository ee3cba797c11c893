"""The learned policy on hardware and arrivals that it never saw, against those it is compared with.

Jobs of the T4 tables with generated and with Philly's arrivals, 4 nodes of 8 GPUs, 60 s per resize,
curves that are right or wrong by 20 % per job, loads of 0.6 to 1.5. `optimus_fitted` believes curves
that were fitted to five measured widths, as Optimus does (a + b/w + c w seconds an iteration, none
negative, relative errors); `optimus` knows the true ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import numpy as np

from laxity_lab.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_lab.simulate.run import Setting, run_cycles, truths_of
from laxity_lab.traces.cases import Source
from laxity_lab.traces.throughput_tables import Tables, load_tables
from laxity_lab.traces.traces import Trace
from laxity_scheduler.simulated.ground_truth import GroundTruth
from studies.datasets import Datasets
from studies.real_arrivals import borrow_arrivals
from studies.study_rows import Row, Trial, figures_row, labels_of, simulation_trial

LOADS: Final = (0.6, 0.9, 1.2, 1.5)
ERRORS: Final = (0.0, 0.2)
POLICIES: Final = ("drf", "srtf", "optimus", "learned")
FITTED: Final = "optimus_fitted"
NODES, GPUS_PER_NODE = 4, 8
JOBS: Final = 60
RESIZE_S: Final = 60.0
POINTS: Final = 5
KEPT: Final = ("jobs", "finished", "avg_jct_s", "preemptions", "resizes")  # nobody has a deadline


@dataclass(frozen=True, slots=True)
class TableJobs:
    """Jobs of tables; `arrivals` of a trace, or generated."""

    tables: Path
    arrivals: Source | None
    mix: ArrivalMix
    seed: int

    def load(self) -> Trace:
        tables = read_tables(self.tables)
        if self.arrivals is None:
            return make_trace(tables, self.mix, seed=self.seed)
        return borrow_arrivals(self.arrivals.load(), tables, self.mix, seed=self.seed)


@lru_cache(maxsize=2)
def read_tables(folder: Path) -> Tables:
    return load_tables(folder)


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each load, arrivals, error and policy; in small at one load on the A100 tables that ship."""
    hardware = "A100" if datasets.samples else "T4"
    tables = datasets.folder / "elasticflow" / f"throughputs_{hardware}"
    arrivals = {f"{hardware}, generated": None} | {
        f"{hardware}, {name}": datasets.source(name) for name in datasets.having(["philly"])
    }
    return [
        trial
        for load in ((0.9,) if datasets.samples else LOADS)
        for name, source in arrivals.items()
        for seed in seeds
        for trial in _world_trials(
            TableJobs(
                tables,
                source,
                ArrivalMix(10 if datasets.samples else JOBS, NODES * GPUS_PER_NODE, load),
                seed,
            ),
            name,
        )
    ]


def _world_trials(case: TableJobs, name: str) -> Iterator[Trial]:
    part = f"load {case.mix.load:g}"
    for error in ERRORS:
        for policy in POLICIES:
            setting = make_setting(policy, error, case.seed)
            yield simulation_trial(case, setting, part=part, trace=name, figures=KEPT)
    setting = make_setting("optimus", 0.0, case.seed)
    labels = {**labels_of(setting, part=part, trace=name), "policy": FITTED}
    yield Trial(labels, partial(_row_of_fit, case, setting))


def make_setting(policy: str, error: float, seed: int) -> Setting:
    return Setting(policy, NODES, GPUS_PER_NODE, restart_s=RESIZE_S, error=error, seed=seed)


def _row_of_fit(case: TableJobs, setting: Setting) -> Row:
    """A run whose policy is told fitted curves; jobs train by the true ones."""
    trace = case.load()
    true = truths_of(trace, setting)
    believed = [_with_fitted_curve(truth) for truth in true]
    return figures_row(run_cycles(trace.name, setting, true, beliefs=believed), KEPT)


def _with_fitted_curve(truth: GroundTruth) -> GroundTruth:
    took_s = fit_curve(truth.widths, [truth.epoch_s[width] for width in truth.widths])
    return replace(truth, epoch_s=dict(zip(truth.widths, took_s, strict=True)))


def fit_curve(widths: Sequence[int], took_s: Sequence[float]) -> list[float]:
    """Seconds at each width, by a curve fitted to the first five."""
    from scipy.optimize import nnls

    workers = np.array(widths, dtype=np.float64)
    terms = np.stack([np.ones(len(workers)), 1.0 / workers, workers], axis=1)
    known_s = np.array(took_s[:POINTS])
    factors, _ = nnls(terms[:POINTS] / known_s[:, None], np.ones(len(known_s)))
    fitted_s: list[float] = (terms @ factors).tolist()
    return fitted_s
