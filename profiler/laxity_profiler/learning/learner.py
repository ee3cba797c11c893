"""Turns what is observed into predictors: a new frozen version whenever something was learned.

`predictor()` is called in every cycle and costs two small queries if nothing is new. A model is
fitted again when its epochs have grown by a tenth, so that a long training makes few versions, or
when one of its jobs finished outside of what was predicted, so that a machine that changes is
followed; the job itself is followed through its own progress, at once. Live predictions and how
they came out are kept too: they are the measured coverage, and move the level of a P90 that misses
too often, that of a start and that of a run apart.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Final, Literal

from laxity_profiler.estimate import Estimate, Workload
from laxity_profiler.history import history_database
from laxity_profiler.history.first_epoch import first_epochs, is_news
from laxity_profiler.history.history import History, HistoryError, TrainingRun
from laxity_profiler.history.observations import ObservedStop
from laxity_profiler.learning.backtest import PredictionOutcome, live_outcome, live_outcomes
from laxity_profiler.learning.fit_inputs import fit_inputs, run_lengths
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.run_shapes import collect_shapes
from laxity_profiler.learning.stretches import Stretch, find_products, node_workers, split_runs
from laxity_profiler.model.calibration import Coverage, adapt_level, measure_coverage
from laxity_profiler.model.early_ends import ended_shares
from laxity_profiler.model.model_fit import ModelFit, SettingFit
from laxity_profiler.overhead.costs import PRIORS, StopCosts, fit_costs, warm_ups
from laxity_profiler.overhead.part import PartFit
from laxity_profiler.predictor.history_predictor import HistoryPredictor

LOG: Final = logging.getLogger(__name__)
GROWTH: Final = 0.1  # a model is fitted again when it has so many more epochs
REFITS: Final = 8  # per call; the first call fits all
PRIORS_SETTING: Final = "priors"  # the store's row that says which
RUNS: Final = 400  # the latest of a model


@dataclass(slots=True)
class _ModelState:
    fit: ModelFit | None = None
    fitted: int = 0  # epochs at the last fit
    seen: int = 0
    warm_up_s: tuple[float, ...] = ()

    @property
    def is_due(self) -> bool:
        return self.seen > self.fitted and self.seen >= (1.0 + GROWTH) * self.fitted


class Learner:
    """Learns from one history. Safe to call from several threads.

    `priors` says what stops and starts cost before any was seen: "local" processes or pods of a
    "cluster". It is kept in the store; without a word it is what the store was last served with.
    """

    def __init__(
        self, history: History, *, priors: Literal["local", "cluster"] | None = None
    ) -> None:
        self._history = history
        self._prior = PRIORS[_read_priors(history, priors)]
        self._states: dict[str, _ModelState] = {}
        self._last_epoch = self._last_stop = 0
        self._stops_seen = self._stops_fitted = 0
        self._first: dict[str, tuple[SettingFit, ...]] = {}  # models in their first epoch
        self._first_seen = 0
        self._rejected_readings: set[tuple[str, str]] = set()
        self._surprised: set[str] = set()  # models that were not as predicted since the last fit
        self._outcomes = self._read_outcomes()
        self._is_first = True
        self._gpus_per_node: int | None = None
        self._needs_rebuild = False  # fits are as they were, and stand in another cluster
        self._lock = RLock()
        self._current = HistoryPredictor(costs=StopCosts((), self._prior))

    def predictor(self) -> HistoryPredictor:
        """The newest predictor; the same object while nothing was learned."""
        with self._lock:
            self._count_news()
            due = [model for model in self._states if self._is_due(model)]
            chosen = sorted(due)[: None if self._is_first else REFITS]
            self._is_first = False
            for model in chosen:
                self._fit_or_keep(model)
            read = self._update_first_epochs()
            stops_due = self._stops_seen >= (1.0 + GROWTH) * self._stops_fitted
            if (
                chosen
                or read
                or self._needs_rebuild
                or (self._stops_seen > self._stops_fitted and stops_due)
            ):
                self._current = self._build_predictor()
            return self._current

    def observe_nodes(self, gpus_per_node: int) -> None:
        """So many GPUs has the largest node: what a width is predicted on.

        Models are fitted anew if it was not known of some of their runs where the workers lay.
        """
        with self._lock:
            if gpus_per_node <= 0 or gpus_per_node == self._gpus_per_node:
                return
            self._gpus_per_node = gpus_per_node
            self._needs_rebuild = True
            for state in self._states.values():
                if state.fit is not None and _is_unplaced(state.fit):
                    state.fitted = 0

    @property
    def prior(self) -> tuple[PartFit, ...]:
        """What stops and starts are taken to cost before any was seen."""
        return self._prior

    def overheads(self) -> list[ObservedStop]:
        """All that the costs of the newest predictor were fitted on: stops, starts and warm-ups."""
        with self._lock:
            return [*self._history.stops(), *warm_ups(self._warm_up_s())]

    def note_prediction(
        self,
        uid: str,
        workload: Workload,
        *,
        stage: str,
        at: float,
        estimate: Estimate,
        version: str,
    ) -> None:
        """Remember what was predicted of a job's remaining time; the first of each stage counts."""
        if estimate.p90_s == float("inf"):
            return
        row = {
            "uid": uid,
            "model": workload.model,
            "stage": stage,
            "version": version,
            "at": at,
            "p10_s": estimate.p10_s,
            "p50_s": estimate.p50_s,
            "p90_s": estimate.p90_s,
            "actual_s": None,
        }
        with history_database.open_transaction(self._history.engine) as connection:
            history_database.insert_new(connection, history_database.PredictionRecord, [row])

    def observe_finish(self, uid: str, *, at: float, idle_s: float = 0.0) -> None:
        """A job has finished: its predictions meet the truth. `idle_s` of the time it did not run."""
        self._history.observe_finish(uid, at=at)
        self._note_epochs_trained(uid)
        with self._lock, history_database.open_transaction(self._history.engine) as connection:
            for row in history_database.predictions_of(connection, uid):
                actual_s = at - row.at - idle_s
                if row.actual_s is None and actual_s > 0.0:
                    history_database.write_actual(connection, uid, row.stage, actual_s)
                    self._outcomes.append(live_outcome(row, actual_s))
                    if not row.p10_s <= actual_s <= row.p90_s:
                        self._surprised.add(row.model)

    def _note_epochs_trained(self, uid: str) -> None:
        """Fit the model anew where runs of it end early: its last epoch was fitted before its end."""
        run = self._history.ended_run(uid)
        with self._lock:
            state = self._states.get(run.workload.model) if run is not None else None
            if run is None or state is None:
                return
            if run.is_early or (state.fit is not None and state.fit.ended):
                state.fitted = 0

    def drop_predictions(self, uid: str) -> None:
        """The job was stopped or resized: what was predicted of another course says nothing."""
        with history_database.open_transaction(self._history.engine) as connection:
            history_database.drop_predictions(connection, uid)

    def reload_outcomes(self) -> None:
        """Take in how predictions came out elsewhere: the replica that led until now judged them.

        Their models are fitted again, all at the next call, with the levels that follow.
        """
        with self._lock:
            before, self._outcomes = set(self._outcomes), self._read_outcomes()
            for model in {outcome.model for outcome in self._outcomes if outcome not in before}:
                if model in self._states:
                    self._states[model].fitted = 0
            self._is_first = True

    def coverage(self) -> tuple[Coverage, ...]:
        """How often finishes kept their predicted P10, P50 and P90, by stage."""
        return measure_coverage(
            (outcome.stage, low_s, middle_s, high_s, outcome.actual_s)
            for outcome in self._outcomes
            for low_s, middle_s, high_s in (outcome.quantiles_s,)
        )

    def _count_news(self) -> None:
        """Count what is new."""
        news = self._history.news(epochs_after=self._last_epoch, stops_after=self._last_stop)
        self._last_epoch, self._last_stop = news.last_epoch_id, news.last_stop_id
        self._stops_seen += news.stops
        for model, n in news.epochs.items():
            self._states.setdefault(model, _ModelState()).seen += n

    def _update_first_epochs(self) -> bool:
        """Whether what unknown models read has news. What is not believed is set aside, once."""
        changes = self._history.first_changes
        if changes == self._first_seen and not any(map(self._is_known, self._first)):
            return False
        self._first_seen = changes
        readings = self._history.first_epochs()
        estimates = first_epochs(
            (reading for reading in readings if not self._is_known(reading.workload.model)),
            self._history.on_fault,
        )
        for uid, doubt in set(estimates.doubts) - self._rejected_readings:
            self._rejected_readings.add((uid, doubt))
            reason = f"its traffic is not believed: {doubt}"
            self._history.reject(uid, reason, "read", at=time.time())
        before, self._first = self._first, dict(estimates.by_model)
        for model, old in before.items():
            if model in self._first and not is_news(old, self._first[model]):
                self._first[model] = old
        return before != self._first

    def _is_known(self, model: str) -> bool:
        return model in self._states and self._states[model].fit is not None

    def _is_due(self, model: str) -> bool:
        state = self._states[model]
        return state.is_due or (model in self._surprised and state.seen > state.fitted)

    def _fit_or_keep(self, model: str) -> None:
        """Fit; a history that cannot be fitted leaves that model as it was, and all others alone.

        No error about one job, and not counted as one: the model's jobs share its history.
        """
        try:
            self._fit_model(model)
        except HistoryError:
            raise
        except Exception:
            LOG.exception("model %s cannot be fitted: what was known of it before is used", model)

    def _fit_model(self, model: str) -> None:
        state = self._states[model]
        runs = self._history.epochs(model)[-RUNS:]
        shapes = collect_shapes(runs)
        stretches = split_runs(runs, gpus_per_node=self._gpus_per_node, shapes=shapes)
        state.fitted = state.seen
        self._surprised.discard(model)
        if stretches:
            start, later = self._adapt_levels(model)
            state.fit = fit_model(
                model,
                stretches,
                level=start,
                later_level=later,
                node_workers=node_workers(runs),
                shapes=shapes.values(),
                ended=ended_shares(_ended_runs(runs)),
                inputs=fit_inputs(runs),
                lengths=run_lengths(runs),
            )
            state.warm_up_s = _warm_up_times(runs, stretches, state.fit)

    def _adapt_levels(self, model: str) -> tuple[float, float]:
        """The levels for its P90 at a start, and later in a run: each from its own outcomes."""
        mine = [outcome for outcome in self._outcomes if outcome.model == model]
        start, later = (
            adapt_level(
                outcome.actual_s <= outcome.quantiles_s[-1]
                for outcome in mine
                if (outcome.stage == "start") is is_start
            )
            for is_start in (True, False)
        )
        return start, later

    def _build_predictor(self) -> HistoryPredictor:
        self._needs_rebuild = False
        stops = self._history.stops()
        self._stops_fitted = self._stops_seen
        fits = [row.fit for _, row in sorted(self._states.items()) if row.fit is not None]
        fits += [ModelFit(model, (), traffic=read) for model, read in sorted(self._first.items())]
        costs = self._fit_costs(stops)
        made = HistoryPredictor(tuple(fits), costs, self._gpus_per_node)
        return self._current if made == self._current else made

    def _fit_costs(self, stops: Sequence[ObservedStop]) -> StopCosts:
        """Of stops and starts of all jobs; those of before if these cannot be fitted."""
        try:
            return fit_costs(stops, warm_up_s=self._warm_up_s(), prior=self._prior)
        except Exception:
            LOG.exception("what stops and starts cost cannot be fitted: what was known is used")
            return self._current.costs

    def _warm_up_s(self) -> dict[str, tuple[float, ...]]:
        return {model: row.warm_up_s for model, row in self._states.items() if row.warm_up_s}

    def _read_outcomes(self) -> list[PredictionOutcome]:
        with history_database.open_transaction(self._history.engine) as connection:
            return live_outcomes(history_database.predictions_of(connection, None))


def _read_priors(history: History, wanted: str | None) -> str:
    """What is told, written down for who is not told; else what was written, else local."""
    with history_database.open_transaction(history.engine) as connection:
        stored = history_database.read_setting(connection, PRIORS_SETTING)
        if wanted and wanted != stored:
            history_database.write_setting(connection, PRIORS_SETTING, wanted)
    priors = wanted or stored
    return priors if priors in PRIORS else "local"


def _is_unplaced(fit: ModelFit) -> bool:
    levels = (level for setting in fit.settings for level in setting.levels)
    return any(level.nodes is None and level.width > 1 for level in levels)


def _ended_runs(runs: Sequence[TrainingRun]) -> list[tuple[int, int]]:
    """(epochs trained, epochs declared) of the runs that ended; old ones say it by their last epoch."""
    pairs = []
    for run in runs:
        total = run.workload.epochs
        trained = run.epochs_trained
        if trained is None and run.epochs and run.epochs[-1].epoch >= total:
            trained = total
        if trained is not None:
            pairs.append((trained, total))
    return pairs


def _warm_up_times(
    runs: Sequence[TrainingRun], stretches: Sequence[Stretch], fit: ModelFit
) -> tuple[float, ...]:
    """How much longer first epochs took than those of their place in other runs, latest last."""
    means: dict[tuple[int, str], list[float]] = {}
    for stretch in stretches:
        if not stretch.only_warm_up:
            means.setdefault((stretch.width, stretch.setting.gpu_type), []).append(stretch.mean_s)
    usual = {place: sum(values) / len(values) for place, values in means.items()}
    product_of = find_products(runs)
    return tuple(
        epoch.epoch_s - usual[place] * fit.ratio_of(run.workload.epochs, epoch.epoch)
        for run in runs
        for epoch in run.epochs
        for place in ((epoch.width, product_of(epoch) or run.workload.gpu_type),)
        if epoch.warmup and place in usual
    )[-100:]
