"""`deadline_flow` makes a Prefect flow of a training function: calling it submits a job and follows it.

The same file is imported by the worker that trains. There, and where LAXITY_ALONE is set or Prefect
is not installed, the decorator returns a light object and Prefect is never imported.

Prefect's engine is used in its sync form: a call costs about a second at its end (its heartbeat
thread is joined), which is little beside a training.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, time, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast

from laxity import names
from laxity.flow.declaration import OPTIONS, Declaration
from laxity.flow.signature import ENV_ALONE, flow_signature, read_call, train_alone
from laxity.job.qos import QoSError
from laxity.job.spec import MOST_RESTARTS

if TYPE_CHECKING:
    from laxity.flow.prefect_flow import DeadlineFlow
    from laxity.worker.training import Training

P = ParamSpec("P")
R = TypeVar("R")

TRAINING: Final = "training"
_HOOKS: Final = ("on_completion", "on_failure", "on_cancellation", "on_crashed", "on_running")
_PATIENCE: Final = ("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")


def deadline_flow(
    *,
    deadline: str | datetime | timedelta | time | None = None,
    workers: int | str | Iterable[int] = 1,
    model: str | None = None,
    epochs: int = 1,
    service_class: str | None = None,
    gpus_per_worker: int = 1,
    preemptible: bool = True,
    epoch_estimate: str | timedelta | None = None,
    on_miss: str = "continue",
    wall_limit: str | timedelta | None = None,
    name: str | None = None,
    namespace: str = "default",
    samples: int | str | None = None,
    batch_size: int | str | None = None,
    size: int | str | None = None,
    dataset_bytes: int | None = None,
    launcher: str | None = None,
    idempotency_key: str | None = None,
    fresh: bool = False,
    one_at_a_time: bool = False,
    freeze: bool = False,
    resumes: bool = False,
    restarts: int = MOST_RESTARTS,
    entry: str | None = None,
    image: str | None = None,
    env: Mapping[str, str] | None = None,
    pass_env: Iterable[str] = (),
    template: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
    **flow_options: Any,
) -> "Callable[[Callable[Concatenate[Training, P], R]], DeadlineFlow[P, R]]":
    """A Prefect flow that carries its QoS. `flow_options` are those of `prefect.flow`.

    The function has a first parameter `training`; the flow has none, and a `deadline` for one run.
    `workers` are the allowed widths: 3, (1, 2, 4), "1..4", or "auto"; more than one needs
    `training.average` or DDP, or `launcher="torch"`: RANK, WORLD_SIZE, MASTER_ADDR as from torchrun. A
    deadline is a duration from the flow run's scheduled start, which a retry keeps, the next "06:00" or
    "Fri 18:00 Europe/Berlin" after it, or an instant; else QoSError.

    The function runs in a worker process, in the context of the flow run: `get_run_logger`,
    `log_prints` and tasks work there if the worker reaches the Prefect API; `pause_flow_run` and timeouts
    do not. Workers run in the caller's directory, with its import path; `env` sets variables, `pass_env`
    names those to pass on. With `freeze` workers on this machine import from a copy of the code.

    Runs with one idempotency key are one job: a later one attaches to it, after a failure starts its
    next attempt (at the first epoch with `fresh`), after a refusal asks again. The key, `samples`,
    `batch_size` and `size` (of the net) may name parameters in braces ("nightly-{seed}"); the key is else
    LAXITY_IDEMPOTENCY_KEY with flow and parameters, else the run's id. `one_at_a_time` refuses others.

    A start goes on from what the function gave to `training.restore` or `training.checkpoint_with`, else
    at epoch 1. `resumes`: the function keeps its own state. `restarts` in a row may fail and finish no
    epoch. Before `wall_limit` ("48h") a start is saved and started again.
    """
    options = {key: value for key, value in locals().items() if key in OPTIONS}
    options["workers"] = workers if isinstance(workers, int | str) else tuple(workers)
    options["tags"] = tuple(tags)
    options["pass_env"] = pass_env if isinstance(pass_env, str) else tuple(pass_env)
    return lambda function: _make_flow(function, name, options, flow_options)


def _make_flow(
    function: Callable[Concatenate["Training", P], R],
    name: str | None,
    options: dict[str, Any],
    flow_options: dict[str, Any],
) -> "DeadlineFlow[P, R]":
    check_function(function)
    title = name or function.__name__.replace("_", "-")
    declared = Declaration.of(title, options)
    if is_plain():
        return cast("DeadlineFlow[P, R]", PlainFlow(function, declared))
    # Prefect's own server, started where there is none, needs longer than 20 s the first time.
    os.environ.setdefault(*_PATIENCE)
    from laxity.flow.prefect_flow import make_deadline_flow

    made = make_deadline_flow(function, declared, {"name": title, **flow_options})
    return cast("DeadlineFlow[P, R]", made)


def is_plain() -> bool:
    """Whether Prefect stays out: in a worker, when training alone, where it is not installed."""
    worker = bool(os.environ.get(names.ENV_JOB)) and not os.environ.get(names.ENV_POOL)
    alone = worker or bool(os.environ.get(ENV_ALONE))
    return alone or find_spec("prefect") is None


def check_function(function: Callable[..., object]) -> None:
    """QoSError unless this is a plain function of `training` and named parameters."""
    if not inspect.isfunction(function):
        raise QoSError(TRAINING, f"{function!r:.60} is no function; decorate one with def")
    title = function.__qualname__
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise QoSError(TRAINING, f"{title} is async; a training has its process alone: use def")
    if inspect.isgeneratorfunction(function):
        raise QoSError(TRAINING, f"{title} yields; return the result instead")
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != TRAINING:
        raise QoSError(TRAINING, f"the first parameter of {title} must be `training`")
    for parameter in parameters[1:]:
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL}:
            raise QoSError(
                TRAINING,
                f"parameter {parameter.name!r} of {title} has no name for a caller; parameters "
                "travel as a JSON object",
            )


class PlainFlow(Generic[P, R]):
    """A declared function where Prefect stays out. Hooks and options are accepted and unused."""

    def __init__(self, function: Callable[..., R], declared: Declaration) -> None:
        functools.update_wrapper(cast("Any", self), function)
        self.__signature__ = flow_signature(function)
        self.__laxity__ = declared
        self.name = declared.title
        for hook in _HOOKS:
            setattr(self, hook, keep_hook)

    @property
    def function(self) -> Callable[..., R]:
        return cast("Callable[..., R]", self.__wrapped__)  # type: ignore[attr-defined]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        job = os.environ.get(names.ENV_JOB)
        if job:
            raise RuntimeError(
                f"{self.name} is called inside a worker of {job}: a training starts no other; put "
                'the call under if __name__ == "__main__":, or into a deadline_workflow'
            )
        if os.environ.get(ENV_ALONE):
            return self.alone(*args, **kwargs)
        raise ModuleNotFoundError(
            f"{self.name} is a Prefect flow and Prefect is not installed: "
            f"pip install '.[flow]' in laxity's clone, or train in this process with {ENV_ALONE}=1",
            name="prefect",
        )

    def alone(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Train here and now, in this process."""
        declared, arguments = read_call(self.function, self.__laxity__, args, kwargs)
        return train_alone(self.function, declared, arguments)

    def with_options(self, **options: object) -> "PlainFlow[P, R]":
        return self

    def with_qos(self, **options: Any) -> "PlainFlow[P, R]":
        return PlainFlow(self.function, self.__laxity__.with_changes(**options))


def keep_hook(hook: R) -> R:
    return hook
