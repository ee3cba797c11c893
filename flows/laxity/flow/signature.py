"""How a training function is called: its signature as callers see it, and training here and now."""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from laxity import names
from laxity.flow.declaration import Declaration
from laxity.job.parameters import visible_signature

R = TypeVar("R")

ENV_ALONE: Final = "LAXITY_ALONE"  # set: train in this process, without service and Prefect
DEADLINE: Final = "deadline"


def train_alone(
    function: Callable[..., R], declared: Declaration, arguments: Mapping[str, Any]
) -> R:
    """Train here and now: no job, no verdict, the same code.

    With LAXITY_CHECKPOINTS set to a folder, a second start goes on from the first one's checkpoints.
    """
    from laxity.worker.training import Training, run_of

    folder = os.environ.get(names.ENV_CHECKPOINTS)
    training = Training(declared.epochs, folder=folder, resumes=declared.resumes)
    result = function(training, **arguments)
    run_of(training).finish()
    return result


def bind_arguments(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by name, with defaults, without `training`; TypeError as a call would raise."""
    signature = visible_signature(function)
    call = signature.bind(*args, **kwargs)
    call.apply_defaults()
    arguments = dict(call.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= arguments.pop(parameter.name)
    return arguments


def flow_signature(function: Callable[..., object]) -> inspect.Signature:
    """What callers of the flow see: the function's own parameters, and a `deadline` for one run.

    A function that has a parameter of that name keeps it for itself.
    """
    signature = visible_signature(function)
    if DEADLINE in signature.parameters:
        return signature
    *others, last = [*signature.parameters.values(), None]
    if others and others[-1].kind is inspect.Parameter.VAR_KEYWORD:
        last = others.pop()
    one_run = inspect.Parameter(
        DEADLINE, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=str | None
    )
    return signature.replace(parameters=[*others, one_run, *([last] if last else [])])


def read_call(
    function: Callable[..., object],
    declared: Declaration,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[Declaration, dict[str, Any]]:
    """The declaration of one run, whose deadline a caller may give, and its arguments by name."""
    if DEADLINE in visible_signature(function).parameters:
        return declared, bind_arguments(function, args, kwargs)
    others = {name: value for name, value in kwargs.items() if name != DEADLINE}
    if deadline := kwargs.get(DEADLINE):
        declared = declared.with_changes(deadline=deadline)
    return declared, bind_arguments(function, args, others)
