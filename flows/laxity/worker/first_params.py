"""Parameters that an earlier start has logged to the training's MLflow run keep their values.

MLflow refuses another value under a name. A run of MLflow's own would be a new one at each start; a
training has one run for all its starts, so `log_param("start_epoch", ...)` would fail the second.
"""

import functools
from collections.abc import Mapping
from typing import Any

from laxity.stderr import say


def keep_first_params(client: Any, ours: str, first: Mapping[str, str]) -> None:
    """Let this class, mlflow.MlflowClient, log no other value for these parameters of the run."""
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
