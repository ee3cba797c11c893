"""Learn what is new, and show in MLflow what was learned: read, fit, register, draw.

May be run at any time, by anybody, again and again: epochs count once, a model's version is made
only if its fit changed, the pictures are drawn only if an outcome is new. Two at once cannot be.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity_profiler import registry_view, tables
from laxity_profiler.evidence import Lesson, Outcome, backtests, errors, live
from laxity_profiler.fitting import stretches
from laxity_profiler.history import History
from laxity_profiler.learner import RUNS, Learner
from laxity_profiler.lease import held
from laxity_profiler.overhead_trained import overhead_entry
from laxity_profiler.predictor import HistoryPredictor
from laxity_profiler.registry import Published, Registry
from laxity_profiler.registry_answers import answering, check_answers
from laxity_profiler.registry_entry import Entry
from laxity_profiler.runs import Runs
from laxity_profiler.trained import Trained, entry_of

if TYPE_CHECKING:
    from sqlalchemy import Engine


@dataclass(frozen=True, slots=True)
class Refit:
    """What one refit did. `view` is the run that shows the calibration."""

    predictor: str
    runs_read: int
    published: tuple[Published, ...]
    view: str
    is_view_new: bool

    @property
    def new(self) -> tuple[Published, ...]:
        return tuple(one for one in self.published if one.is_new)


def refit(engine: "Engine", tracking_uri: str, *, say: Callable[[str], None]) -> Refit:
    """One refit. MlflowAwayError, HistoryError or LeaseHeldError if it cannot be done now."""
    check_answers(tracking_uri)
    history = History(engine)
    registry = Registry(tracking_uri)
    with held(engine, "refit") as lease:
        with answering(tracking_uri):
            read = Runs(history, tracking_uri).read()
        say(f"{read} MLflow runs read")
        learner = Learner(history)
        predictor = learner.predictor()
        published: list[Published] = []
        past: list[Outcome] = []
        for entry in _entries(history, predictor, past):
            published.append(_published(registry, entry, say))
            lease.renew()
        if history.stops(most=1):
            entry = overhead_entry(predictor.costs, learner.overheads(), prior=learner.prior)
            published.append(_published(registry, entry, say))
            lease.renew()
        with tables.transaction(engine) as connection:
            finished = live(tables.predictions_of(connection, None))
        view, is_new = registry_view.refresh(registry, {"live": finished, "backtest": past})
        return Refit(predictor.version, read, tuple(published), view, is_new)


def _entries(history: History, predictor: HistoryPredictor, past: list[Outcome]) -> Iterator[Entry]:
    """What was learned of each model, one at a time; its backtests are added to `past`."""
    for fit in predictor.models:
        runs = history.epochs(fit.model)[-RUNS:]
        outcomes = backtests(fit.model, stretches(runs))
        past += outcomes
        yield entry_of(Trained(fit, Lesson.of(runs), errors(outcomes)))


def _published(registry: Registry, entry: Entry, say: Callable[[str], None]) -> Published:
    one = registry.publish(entry)
    if one.is_new:
        say(f"{one.name}: version {one.version}")
    return one
