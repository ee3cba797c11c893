"""Run a study: its trials one after another, or side by side, each kept as soon as it is done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laxity_lab.simulate.process_pool import run_calls
from laxity_lab.traces.traces import TraceError
from studies import (
    deadlines,
    errors,
    learned_front,
    learned_study,
    learned_training,
    loan_ablations,
    loan_ladder,
    pickyman_study,
    product_study,
    qos_study,
    workflow_study,
)
from studies.datasets import Datasets
from studies.results import read_rows, write_rows
from studies.study_rows import LABELS, Row, Trial, cell_text, row_key


class NoSuchRowsError(ValueError):
    """Labels were asked for that no row has together."""


Trials = Callable[[Datasets, Sequence[int]], list[Trial]]
TrialResult = tuple[Trial, Row | None, str]  # a trial, its row, or what went wrong


@dataclass(frozen=True, slots=True)
class Study:
    """Its trials are a pure function of traces and seeds."""

    name: str
    asks: str
    trials: Trials


STUDIES: Final = {
    study.name: study
    for study in (
        Study("pickyman", "waiting and makespan against FIFO, SRTF and LAS", pickyman_study.trials),
        Study(
            "division",
            "PickyMan's greedy choice of victims against the best",
            pickyman_study.cover_trials,
        ),
        Study(
            "stop_prices",
            "PickyMan's waiting where a stop costs 1 to 50 % of a median job",
            pickyman_study.price_trials,
        ),
        Study("qos", "deadlines met on a scarce and on a sufficient cluster", qos_study.trials),
        Study(
            "elasticflow", "ElasticFlow's table, under its authors' costs", deadlines.table_trials
        ),
        Study(
            "ladder",
            "deadlines met against promises, on ever smaller clusters",
            deadlines.ladder_trials,
        ),
        Study(
            "learned",
            "completion times of the learned policy on unseen hardware",
            learned_study.trials,
        ),
        Study(
            "learned_training",
            "what each part of training the learned policy is worth, over seeds",
            learned_training.trials,
        ),
        Study(
            "learned_front",
            "deadlines met against completion times, of the learned policy and of others",
            learned_front.trials,
        ),
        Study("errors", "prediction errors of 0 to 40 % and three models of costs", errors.trials),
        Study(
            "loans",
            "what lending, scaling, and each rule within them are worth to a queue",
            loan_ablations.trials,
        ),
        Study(
            "loan_ladder",
            "deadlines met and promises kept with and without loans, on ever smaller clusters",
            loan_ladder.trials,
        ),
        Study(
            "products",
            "a cluster of two products of GPU, kept apart and taken for one",
            product_study.trials,
        ),
        Study(
            "workflows",
            "workflows kept with moving shares against deadlines split by hand",
            workflow_study.trials,
        ),
    )
}


def run_study(
    study: Study,
    datasets: Datasets,
    seeds: Sequence[int],
    folder: Path,
    *,
    processes: int = 1,
    selects: Callable[[Trial], bool] = lambda _trial: True,
    on_result: Callable[[int, int, TrialResult], None] = lambda _done, _trial_count, _result: None,
) -> list[str]:
    """Compute the rows that the folder lacks; what went wrong, a line for each."""
    every = study.trials(datasets, seeds)
    if not every:
        raise TraceError(
            f"{datasets.folder} has no trace that study {study.name} takes; --samples has some"
        )
    trials = [trial for trial in every if selects(trial)]
    if not trials:
        raise NoSuchRowsError(_labels_text(study.name, every))
    rows = {row_key(row): row for row in read_rows(folder, study.name)}
    lacking = [trial for trial in trials if trial.key not in rows]
    problems = []
    write_rows(folder, study.name, rows.values())
    results = run_calls(try_trial, [(trial,) for trial in lacking], processes)
    for done, (_, result) in enumerate(results, start=1):
        trial, row, problem = result
        if row is None:
            problems.append(f"{', '.join(part for part in trial.key if part)}: {problem}")
        else:
            rows[trial.key] = row
            write_rows(folder, study.name, rows.values())
        on_result(done, len(lacking), result)
    return problems


def _labels_text(study: str, trials: Sequence[Trial]) -> str:
    """Which labels can be asked for."""
    values_by_label = {
        name: sorted({cell_text(trial.labels.get(name)) for trial in trials}) for name in LABELS
    }
    several = [
        f"{name}={'|'.join(values)}" for name, values in values_by_label.items() if len(values) > 1
    ]
    return f"no row of study {study} has all these labels; there is {', '.join(several)}"


def try_trial(trial: Trial) -> TrialResult:
    """One trial that fails leaves the others alone."""
    try:
        return trial, trial.row(), ""
    except (ValueError, RuntimeError) as problem:
        return trial, None, str(problem)
