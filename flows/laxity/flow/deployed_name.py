"""How the runs of a deployment find a flow: by a name at the top level of its file."""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from laxity.flow.declaration import QOS_FIELDS, Declaration
from laxity.job.qos import QoSError

HANDED_ON: Final = "gpus_per_worker"  # always among the job variables that hand a declaration on


def flow_entrypoint(function: Callable[..., Any]) -> str:
    module = function.__module__
    if module == "__main__" or module.startswith("__prefect_loader_"):
        module = inspect.getfile(function)
    return f"{module}:{function.__qualname__}"


def entrypoint_of(
    flow: Any, function: Callable[..., Any], entrypoint: str, job_variables: Mapping[str, Any]
) -> str:
    """The entrypoint of a deployment, by a name that holds this very flow.

    QoSError where its runs would import a flow with another declaration, except for what its job
    variables hand on.
    """
    held, there = function.__globals__, re.split(r"[.:]", entrypoint)[-1]
    if held.get(there) is flow:
        return entrypoint
    for name in _names_in(function):
        if held.get(name) is flow:
            return re.sub(r"[^.:]+$", name, entrypoint)
    declared: Declaration | None = getattr(held.get(there), "declaration", None)
    if declared is None:
        return entrypoint  # nobody's name: Prefect says that it cannot be imported
    lost = declared.changed_in(flow.declaration)
    if HANDED_ON in job_variables:
        lost = [option for option in lost if option not in QOS_FIELDS]
    if lost:
        raise QoSError(
            lost[0],
            f"what with_qos changed is lost in runs of a deployment, which import {there} again: "
            f"write changed = {there}.with_qos(...) at the top level of "
            f"{Path(inspect.getfile(function)).name}, and deploy changed",
        )
    return entrypoint


def _names_in(function: Callable[..., Any]) -> Iterable[str]:
    """The names that are assigned at the top level of the function's file, whoever imports it."""
    try:
        body = ast.parse(Path(inspect.getfile(function)).read_bytes()).body
    except OSError:
        return
    for node in body:
        targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
