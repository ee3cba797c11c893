"""Deadlines and promises with and without loans, on every rung of the ladder of ever smaller clusters.

The rungs of `deadlines`, each with twice as many inference nodes as training nodes, so that something
is lent on the smallest one as well; epochs of 60 s, 60 s per restart, perfect predictions. Without
loans the inference nodes keep to themselves. As published all jobs are due: only flexible workers
may be on lent nodes. Then half of them, drawn by seed, have no deadline, and may run there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Final

from laxity_lab.simulate.run import Setting
from laxity_lab.traces.cases import Case, Source
from laxity_lab.traces.traces import Trace
from studies.datasets import Datasets
from studies.deadlines import RESTART_S, RUNGS, SLOT_S, SMALL
from studies.study_rows import Trial, simulation_trial

LOAD: Final = "servegen/rates.csv"
POLICIES: Final = ("elasticflow", "edf_elastic", "qos")
INFERENCE_PER_TRAINING: Final = 2
SAMPLE_GPUS: Final = 64
FIGURES: Final = (
    "jobs",
    "finished",
    "deadlines",
    "deadlines_met",
    "promises",
    "promises_broken",
    "avg_jct_s",
    "preemptions",
    "resizes",
    "lent_gpus_mean",
)


@dataclass(frozen=True, slots=True)
class HalfDue:
    """A trace half of whose jobs, drawn by seed, have no deadline."""

    source: Source
    seed: int

    def load(self) -> Trace:
        trace, draw = self.source.load(), Random(f"due of {self.seed}")  # noqa: S311 - no secret
        return replace(
            trace,
            jobs=tuple(
                job
                if draw.random() < 0.5
                else replace(job, deadline_at=inf, service_class="best_effort")
                for job in trace.jobs
            ),
        )


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each rung of the small traces, each policy, with and without loans."""
    rungs = [
        (name, gpus)
        for name in datasets.having(SMALL)
        for gpus in ((SAMPLE_GPUS,) if datasets.samples else RUNGS[name])
    ]
    return [trial for name, gpus in rungs for trial in _rung_trials(datasets, name, gpus, seeds)]


def _rung_trials(datasets: Datasets, name: str, gpus: int, seeds: Sequence[int]) -> Iterator[Trial]:
    source = datasets.source(name)
    cases: list[tuple[str, int, Case]] = [("all due", seeds[0], source)]
    drawn = seeds[:1] if datasets.samples else seeds
    cases += [("half due", seed, HalfDue(source, seed)) for seed in drawn]
    for part, seed, case in cases:
        for policy in POLICIES[:1] if datasets.samples else POLICIES:
            for lends in (False, True):
                setting = Setting(
                    policy,
                    gpus // 8,
                    8,
                    pooled=True,
                    restart_s=RESTART_S,
                    epoch_s=SLOT_S,
                    seed=seed,
                    inference=LOAD,
                    inference_nodes=INFERENCE_PER_TRAINING * gpus // 8,
                    lends=lends,
                )
                yield simulation_trial(
                    case,
                    setting,
                    part=part,
                    trace=name,
                    figures=FIGURES,
                    variant="loans" if lends else "no loans",
                )
