"""`deadline_workflow` gives several deadline flows one deadline: a Prefect flow that calls them.

`steps` says what will run, as numbers of trainings in series and side by side. Without it, laxity learns
that from the first finished run, which is predicted and not promised.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from laxity.durations import parse_zoned_deadline, with_local_zone
from laxity.flow.active_group import Workflow, step_name
from laxity.flow.decorator import is_plain
from laxity.instants import format_instant
from laxity.job.qos import QoSError, check_class

if TYPE_CHECKING:
    from prefect.flows import Flow

P = ParamSpec("P")
R = TypeVar("R")
Json = dict[str, Any]
ENTRY_TO_COME: Final = "module:function"  # of a manifest from which a step's time is predicted


@dataclass(frozen=True, slots=True)
class Parallel:
    """Trainings side by side: each a deadline flow and how many of it."""

    branches: tuple[tuple[Any, int], ...]


def parallel(*flows: Any) -> Parallel:
    """Trainings that run side by side: `parallel(finetune, 3)`, `parallel(left, right)`.

    A number after a flow says how many of it; a range of two numbers, (2, 4), counts as its greater one.
    """
    branches: list[tuple[Any, int]] = []
    for one in flows:
        if isinstance(one, int | tuple):
            most = max(one) if isinstance(one, tuple) else one
            if not branches or isinstance(most, bool) or not isinstance(most, int) or most < 1:
                raise QoSError("steps", f"{one!r:.40} follows no flow; write parallel(flow, 3)")
            branches[-1] = (branches[-1][0], most)
        else:
            branches.append((one, 1))
    return Parallel(tuple(branches))


def deadline_workflow(
    *,
    deadline: str | datetime | timedelta | time,
    steps: Iterable[Any] = (),
    name: str | None = None,
    namespace: str = "default",
    service_class: str = "hard",
    idempotency_key: str | None = None,
    **flow_options: Any,
) -> Callable[[Callable[P, R]], "Flow[P, R]"]:
    """A Prefect flow whose deadline flows have one deadline together.

    `steps` lists the deadline flows in the order in which they run; `parallel` names those that run side
    by side. `deadline` counts from the run's scheduled start, and a retry keeps it. A run with the same
    `idempotency_key` attaches to the trainings of an earlier one. QoSError for what cannot be meant.
    """
    text = _deadline_text(deadline)
    try:
        kind = check_class(service_class) or "hard"
    except ValueError as error:
        raise QoSError("service_class", str(error)) from None
    planned = tuple(plan_steps(tuple(steps), namespace))

    def make(function: Callable[P, R]) -> "Flow[P, R]":
        title = name or function.__name__.replace("_", "-")
        workflow = Workflow(title, text, namespace, kind, idempotency_key, planned)
        if is_plain():  # a worker that imports this file, or training here and now
            return cast("Flow[P, R]", function)
        from laxity.flow.prefect_workflow import make_workflow

        return cast("Flow[P, R]", make_workflow(function, workflow, flow_options))

    return make


def _deadline_text(deadline: object) -> str:
    if isinstance(deadline, datetime):
        return format_instant(deadline)
    if isinstance(deadline, timedelta):
        return f"{deadline.total_seconds():g}s"
    text = deadline.strftime("%H:%M") if isinstance(deadline, time) else deadline
    try:
        zoned = with_local_zone(cast("str", text))
        parse_zoned_deadline(zoned)
    except (ValueError, TypeError, AttributeError) as error:
        raise QoSError("deadline", str(error)) from None
    return zoned


def plan_steps(elements: Sequence[Any], namespace: str) -> Iterable[Json]:
    """The steps as the service reads them, each after all of the element before."""
    before: list[str] = []
    for element in elements:
        row = element if isinstance(element, Parallel) else Parallel(((element, 1),))
        here = []
        for flow, count in row.branches:
            declared = getattr(flow, "declaration", None) or getattr(flow, "__laxity__", None)
            if declared is None:
                what = f"{flow!r:.60} is no deadline flow; list functions under @deadline_flow"
                raise QoSError("steps", what)
            spec = declared.with_changes(namespace=namespace).spec(
                entry=ENTRY_TO_COME, parameters={}
            )
            here.append(step_name(declared.title))
            yield {
                "name": here[-1], "count": count, "after": list(before),
                "manifest": spec.to_manifest(),
            }  # fmt: skip
        before = here
