"""The part of xgboost and LightGBM: rounds of boosting under a deadline.

    rounds = laxity.boosting.rounds(training, every=10)  # beside callbacks=[early stopping]
    xgboost.train(params, data, rounds.left, xgb_model=rounds.model, callbacks=[rounds])
    lightgbm.train(params, data, rounds.left, init_model=rounds.model, callbacks=[rounds])

Each `every` rounds are an epoch, and a stop is taken after any round. A library that draws rows or
columns for each round draws others in a resumed run: it keeps no state of that.
"""

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from laxity.worker.library_loop import LibraryLoop
from laxity.worker.training import Training, run_of

MODEL: Final = "model.ubj"  # each library reads what it has written, whatever the name
STATE: Final = "callbacks.pkl"


def rounds(training: Training, *, every: int, callbacks: Sequence[Any] = ()) -> Any:
    """The callback of a training of `every` rounds an epoch.

    Other callbacks that have a state, such as early stopping, go here: it calls them and keeps it.
    """
    xgboost = sys.modules.get("xgboost")
    bases = (
        (_RoundCounter, xgboost.callback.TrainingCallback)
        if xgboost is not None
        else (_RoundCounter,)
    )
    return type("Rounds", bases, {})(training, every, callbacks)


class _RoundCounter:
    """A callback of both libraries: xgboost has hooks, LightGBM calls it after each round."""

    order = 0  # among LightGBM's

    def __init__(self, training: Training, every: int, callbacks: Sequence[Any]) -> None:
        self._callbacks, self._booster, self._is_over = callbacks, cast("Any", None), False
        self.before_iteration = _BeforeRound(self._before_iteration)
        self._loop = LibraryLoop(training, self._save, alone="boosting")
        if self._loop.checkpoint is not None:
            state = (self._loop.checkpoint / STATE).read_bytes()
            self._is_over, states = pickle.loads(state)  # noqa: S301 - the job's own
            for callback, values in zip(callbacks, states, strict=False):
                vars(callback).update(values)
        self._total = training.total_epochs * every
        self._done = run_of(training).steps_done(every)
        self.left = max(1, self._total - self._done)  # the libraries take no 0; it is not kept then
        self._is_over |= self._done >= self._total
        self._loop.begin(at=self._done, total=self._total, every=every, stops="anywhere")

    @property
    def model(self) -> str | None:
        """The file of the booster to go on with; None at the first start."""
        folder = self._loop.checkpoint
        return None if folder is None or not self._done else str(folder / MODEL)

    def _save(self, path: Path) -> None:
        path.mkdir(parents=True)
        if self._booster is not None:  # else no round is done
            all_rounds = (
                {"num_iteration": -1} if hasattr(self._booster, "rollback_one_iter") else {}
            )
            self._booster.save_model(path / MODEL, **all_rounds)
        state = self._is_over, [vars(callback) for callback in self._callbacks]
        (path / STATE).write_bytes(pickle.dumps(state))

    def _count(self, booster: Any, figures: Mapping[str, float]) -> None:
        self._booster, self._done = booster, self._done + 1
        self._loop.log(**figures)
        self._loop.advance(self._done)

    # --- LightGBM ---

    def __call__(self, env: Any) -> None:
        """After each round. Early stopping is new only where no round was done before."""
        if self._is_over:
            env.model.rollback_one_iter()
            raise self._end_of_lightgbm()
        stop: Exception | None = None
        is_first = env.iteration == env.begin_iteration and self.model is None
        replaced = getattr(env, "_replace", partial(replace, env))  # once a named tuple
        env_ = replaced(begin_iteration=env.iteration if is_first else -1)
        for callback in self._callbacks:
            try:
                callback(env_)
            except sys.modules["lightgbm"].callback.EarlyStopException as error:
                stop = error
        self._is_over = stop is not None
        rows = env.evaluation_result_list or []
        self._count(env.model, {f"{row[0]}-{row[1]}": row[2] for row in rows})
        if stop is not None:
            self._loop.end()
            raise stop

    def _end_of_lightgbm(self) -> Exception:
        """What its early stopping raised when these rounds were trained, else nothing special."""
        best = [each for each in self._callbacks if getattr(each, "best_iter", None)]
        end: type[Exception] = sys.modules["lightgbm"].callback.EarlyStopException
        return end(best[0].best_iter[0], best[0].best_score_list[0]) if best else end(-1, [])

    # --- xgboost ---

    def before_training(self, model: Any) -> Any:
        for callback in self._callbacks:
            model = callback.before_training(model)
        return model

    def _before_iteration(self, model: Any, epoch: int, log: Any) -> bool:
        others = [callback.before_iteration(model, epoch, log) for callback in self._callbacks]
        return self._is_over or any(others)

    def after_iteration(self, model: Any, epoch: int, log: Any) -> bool:
        stops = [callback.after_iteration(model, epoch, log) for callback in self._callbacks]
        self._is_over = any(stops)
        names = [(data, metric) for data, metrics in log.items() for metric in metrics]
        self._count(model, {f"{data}-{name}": log[data][name][-1] for data, name in names})
        return self._is_over

    def after_training(self, model: Any) -> Any:
        self._loop.end()
        for callback in self._callbacks:
            model = callback.after_training(model)
        return model


class _BeforeRound:
    """xgboost calls it before a round; LightGBM calls what is true here before a round, not after."""

    def __init__(self, call: Callable[..., bool]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> bool:
        return self._call(*args)

    def __bool__(self) -> bool:
        return False
