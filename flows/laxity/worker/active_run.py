"""The training's MLflow run, as the one that the training code's own MLflow calls log to.

`mlflow.start_run()` and autolog resume the run that MLFLOW_RUN_ID names, and unset it: so it is set
again before each epoch. Runs nested in it belong to its experiment, which MLFLOW_EXPERIMENT_ID names;
without that, MLflow puts them into "Default", apart from their parent. Code that chooses another
experiment or another server keeps the run of its own that it would have without laxity: MLflow would
raise instead of resuming this one.
"""

import functools
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from laxity.stderr import say
from laxity.worker.mlflow_tracking import read_run

ENV: Final = "MLFLOW_RUN_ID"
ENV_EXPERIMENT: Final = "MLFLOW_EXPERIMENT_ID"


class ActiveRun:
    """The run of this worker process. `run_id` finds or makes it, within seconds."""

    def __init__(self, uri: str, run_id: Callable[[], str]) -> None:
        self._uri, self._find = uri, run_id
        self._run_id = ""  # "" also once the code logs elsewhere
        self._mlflow: Any = None

    def join(self, mlflow: ModuleType) -> None:
        """Called with the module when the process has imported it."""
        self._mlflow, self._run_id = mlflow, self._find()
        if not self._run_id:
            return
        run = read_run(self._uri, self._run_id)
        experiment = str(run.info.experiment_id)
        if run.data.params:
            keep_first_params(mlflow.MlflowClient, self._run_id, run.data.params)
        os.environ[ENV_EXPERIMENT] = experiment
        self._follow_function(
            "set_experiment", experiment, lambda chosen: chosen.experiment_id == experiment
        )
        self._follow_function(
            "set_tracking_uri",
            experiment,
            lambda _: self._mlflow.get_tracking_uri() == self._uri,
        )
        self.offer()

    def offer(self) -> None:
        """Let the next `start_run` resume the run, unless it is active now."""
        if self._run_id and self._mlflow.active_run() is None:
            os.environ[ENV] = self._run_id

    def _follow_function(self, name: str, experiment: str, is_ours: Callable[[Any], bool]) -> None:
        """Once this function of mlflow has led elsewhere, the run is offered no more."""
        choose = getattr(self._mlflow, name)

        @functools.wraps(choose)
        def chosen(*args: Any, **kwargs: Any) -> Any:
            result = choose(*args, **kwargs)
            if self._run_id and not is_ours(result):
                self._run_id = ""
                os.environ.pop(ENV, None)
                if os.environ.get(ENV_EXPERIMENT) == experiment:  # set_experiment sets its own
                    del os.environ[ENV_EXPERIMENT]
                say(
                    f"mlflow.{name} leads to a run of its own, without prediction and promise; for "
                    "one run leave it out (its experiment: env={'MLFLOW_EXPERIMENT_NAME': ...})"
                )
            return result

        setattr(self._mlflow, name, chosen)


def keep_first_params(client: Any, ours: str, first: Mapping[str, str]) -> None:
    """Let this class, mlflow.MlflowClient, log no other value for these parameters of the run.

    MLflow refuses another value under a name, and a training has one run for all its starts: so
    `log_param("start_epoch", ...)` would fail the second start.
    """
    log_param, log_batch = client.log_param, client.log_batch

    def is_new(key: str, value: object) -> bool:
        if first.get(key, str(value)) == str(value):
            return True
        say(f"MLflow keeps {key}={first[key]!r} of an earlier start; {str(value)!r} is not logged")
        return False

    @functools.wraps(log_param)
    def log_new_param(
        self: Any, run_id: str, key: str, value: Any, *more: Any, **options: Any
    ) -> Any:
        if run_id != ours or is_new(key, value):
            return log_param(self, run_id, key, value, *more, **options)
        return value

    @functools.wraps(log_batch)
    def log_new_batch(
        self: Any, run_id: str, metrics: Any = (), params: Any = (), *more: Any, **options: Any
    ) -> Any:
        new = [row for row in params if run_id != ours or is_new(row.key, row.value)]
        return log_batch(self, run_id, metrics, new, *more, **options)

    client.log_param, client.log_batch = log_new_param, log_new_batch
