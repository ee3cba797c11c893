"""`python -m benchmarks answers`: the rest of thousands of jobs at many widths, asked of one predictor.

Jobs of 50 models with histories, each with five epochs of its own; *cold* is a predictor that was
never asked, *cached* the same question again with 2 % of the jobs in another epoch. The baseline
asks row by row. CPU time counts, so that a busy machine says the same.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import typer

from laxity_profiler.estimate import Ask, Progress, Workload
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.model_fit import WorkloadSetting
from laxity_profiler.predictor.history_predictor import HistoryPredictor

if TYPE_CHECKING:
    from benchmarks.results import Metric
    from laxity_profiler.model.model_fit import ModelFit

JOBS: Final = 10_000
MODELS: Final = 50
WIDTHS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
OWN_EPOCHS: Final = 5
CHANGED: Final = 50  # one job in so many has ended an epoch since
ALONE: Final = 2_000  # rows of the baseline


def answers(
    *,
    jobs: Annotated[int, typer.Option(min=CHANGED, help="Jobs, at 8 widths each.")] = JOBS,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Milliseconds to predict thousands of jobs at eight widths."""
    from benchmarks.results import show

    show(measure_answers(jobs), as_json=json_)


def measure_answers(jobs: int) -> "dict[str, Metric]":
    """Cold and cached, against the same rows one by one."""
    from benchmarks.results import figure

    fitted = HistoryPredictor(tuple(_draw_model(number) for number in range(MODELS)))
    draw = np.random.default_rng(0)
    rows = [_draw_job(number, draw) for number in range(jobs)]
    later = [
        (workload, _one_epoch_later(progress) if number % CHANGED == 0 else progress)
        for number, (workload, progress) in enumerate(rows)
    ]
    asks, again = _list_asks(rows), _list_asks(later)
    fitted.table(_list_asks([_draw_job(jobs, draw)]))  # loads what is loaded once
    alone_ms = _time_rows_ms(replace(fitted), asks[:ALONE]) * len(asks) / min(ALONE, len(asks))
    cold_ms, cached_ms = _time_table_ms(fitted, asks), _time_table_ms(fitted, again)
    return {
        "rows": figure(len(asks), "rows"),
        "cold_ms": figure(cold_ms, "ms", baseline=alone_ms),
        "cached_ms": figure(cached_ms, "ms", baseline=alone_ms),
    }


def _time_table_ms(predictor: HistoryPredictor, asks: Sequence[Ask]) -> float:
    began_s = time.process_time()
    predictor.table(asks)
    return 1e3 * (time.process_time() - began_s)


def _time_rows_ms(predictor: HistoryPredictor, asks: Sequence[Ask]) -> float:
    began_s = time.process_time()
    for ask in asks:
        predictor.remaining(ask.workload, ask.progress, ask.workers)
    return 1e3 * (time.process_time() - began_s)


def _draw_model(number: int) -> "ModelFit":
    """Runs on 1 to 8 workers, as fast as these share the work, with noise of 5 %."""
    draw = np.random.default_rng(number)
    stretches = [
        Stretch(
            WorkloadSetting(), width, tuple((60.0 / width * draw.uniform(0.95, 1.05, 20)).tolist())
        )
        for width in (1, 2, 4, 8)
        for _ in range(3)
    ]
    return fit_model(f"model-{number}", stretches)


def _draw_job(number: int, draw: np.random.Generator) -> tuple[Workload, Progress]:
    epochs = tuple((60.0 * draw.uniform(0.8, 1.2) * draw.uniform(0.95, 1.05, OWN_EPOCHS)).tolist())
    workload = Workload(f"model-{number % MODELS}", 100)
    return workload, Progress(OWN_EPOCHS, epochs, (1,) * OWN_EPOCHS)


def _one_epoch_later(progress: Progress) -> Progress:
    """One epoch later, as long as the one before."""
    return Progress(
        progress.epochs_done + 1,
        (*progress.epoch_s, progress.epoch_s[-1]),
        (*progress.widths, progress.widths[-1]),
    )


def _list_asks(rows: Sequence[tuple[Workload, Progress]]) -> list[Ask]:
    return [Ask(workload, progress, width) for workload, progress in rows for width in WIDTHS]
