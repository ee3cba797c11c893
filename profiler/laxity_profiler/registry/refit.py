"""Learn what is new, and show in MLflow what was learned: read, fit, register, draw.

May be run at any time, by anybody, again and again: epochs count once, a model's version is made
only if its fit changed, the pictures are drawn only if an outcome is new. Two at once cannot be.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity_profiler.history import history_database
from laxity_profiler.history.history import History
from laxity_profiler.history.mlflow_runs import MlflowRuns
from laxity_profiler.history.store_lease import hold_lease
from laxity_profiler.learning.backtest import (
    PredictionOutcome,
    TrainingSummary,
    error_metrics,
    live_outcomes,
    run_backtests,
)
from laxity_profiler.learning.learner import RUNS, Learner
from laxity_profiler.learning.stretches import split_runs
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_profiler.registry import calibration_run
from laxity_profiler.registry.entry import RegistryEntry
from laxity_profiler.registry.mlflow_errors import check_answers, translate_mlflow_errors
from laxity_profiler.registry.mlflow_registry import Published, Registry
from laxity_profiler.registry.overhead_entry import overhead_entry
from laxity_profiler.registry.predictor_entry import TrainedModel, predictor_entry

if TYPE_CHECKING:
    from sqlalchemy import Engine


@dataclass(frozen=True, slots=True)
class RefitResult:
    """What one refit did. `view` is the run that shows the calibration."""

    predictor: str
    runs_read: int
    published: tuple[Published, ...]
    view: str
    is_view_new: bool

    @property
    def new(self) -> tuple[Published, ...]:
        return tuple(published for published in self.published if published.is_new)


def refit(engine: "Engine", tracking_uri: str, *, say: Callable[[str], None]) -> RefitResult:
    """One refit. MlflowAwayError, HistoryError or LeaseHeldError if it cannot be done now."""
    check_answers(tracking_uri)
    history = History(engine)
    registry = Registry(tracking_uri)
    with hold_lease(engine, "refit") as lease:
        with translate_mlflow_errors(tracking_uri):
            read = MlflowRuns(history, tracking_uri).read()
        say(f"{read} MLflow runs read")
        learner = Learner(history)
        predictor = learner.predictor()
        published: list[Published] = []
        past: list[PredictionOutcome] = []
        for entry in _model_entries(history, predictor, past):
            published.append(_publish_entry(registry, entry, say))
            lease.renew()
        if history.stops(most=1):
            entry = overhead_entry(predictor.costs, learner.overheads(), prior=learner.prior)
            published.append(_publish_entry(registry, entry, say))
            lease.renew()
        with history_database.open_transaction(engine) as connection:
            finished = live_outcomes(history_database.predictions_of(connection, None))
        view, is_new = calibration_run.refresh_calibration(
            registry, {"live": finished, "backtest": past}
        )
        return RefitResult(predictor.version, read, tuple(published), view, is_new)


def _model_entries(
    history: History, predictor: HistoryPredictor, past: list[PredictionOutcome]
) -> Iterator[RegistryEntry]:
    """What was learned of each model, one at a time; its backtests are added to `past`."""
    for fit in predictor.models:
        runs = history.epochs(fit.model)[-RUNS:]
        outcomes = run_backtests(fit.model, split_runs(runs))
        past += outcomes
        yield predictor_entry(TrainedModel(fit, TrainingSummary.of(runs), error_metrics(outcomes)))


def _publish_entry(
    registry: Registry, entry: RegistryEntry, say: Callable[[str], None]
) -> Published:
    published = registry.publish(entry)
    if published.is_new:
        say(f"{published.name}: version {published.version}")
    return published
