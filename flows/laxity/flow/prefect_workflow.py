"""The Prefect side of `deadline_workflow`: a flow whose body runs in the context of its group."""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.flows import Flow
from prefect.logging import get_run_logger

from laxity.api.client import Client, ServiceError
from laxity.api.status_text import GroupRefused
from laxity.flow.active_group import ACTIVE, ActiveGroup, Workflow
from laxity.flow.declaration import ENV_IDEMPOTENCY_KEY
from laxity.flow.failed_states import end_retries, is_retried, make_failed_state
from laxity.flow.pool_variables import WORKFLOW, check_run
from laxity.instants import format_rfc3339
from laxity.job.qos import QoSError
from laxity.job.spec import job_name
from laxity.worded_error import WordedError

LABEL_GROUP = "laxity.group"


def make_workflow(function: Callable[..., Any], workflow: Workflow, options: dict[str, Any]) -> Any:
    """A Flow of the user's function, which ends the group as it ends itself."""
    hooks = [cancel_group, *(options.pop("on_cancellation", None) or [])]
    body = _async_body if inspect.iscoroutinefunction(function) else _sync_body
    name = options.pop("name", workflow.title)
    return WorkflowFlow(body(function, workflow), name=name, on_cancellation=hooks, **options)


class WorkflowFlow(Flow[..., Any]):
    """A flow whose errors in words are raised from here: Prefect's frames would bury them."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            return super().__call__(*args, **options)
        except WordedError as error:
            raise error.with_traceback(None) from None


def _sync_body(function: Callable[..., Any], workflow: Workflow) -> Callable[..., Any]:
    @functools.wraps(function)
    def run_whole(*args: Any, **kwargs: Any) -> Any:
        context = FlowRunContext.get()
        try:
            with joining(workflow):
                return function(*args, **kwargs)
        except (GroupRefused, QoSError) as error:
            if context is None or context.flow_run is None:
                raise
            return _refused_state(context, context.flow_run, error)

    return run_whole


def _refused_state(context: FlowRunContext, run: FlowRun, error: Exception) -> Any:
    """The flow has failed with the error's sentence, and is not tried again."""
    with get_client(sync_client=True) as api:
        end_retries(api, run, error)
    return make_failed_state(context, error)


def _async_body(function: Callable[..., Any], workflow: Workflow) -> Callable[..., Any]:
    @functools.wraps(function)
    async def run_whole(*args: Any, **kwargs: Any) -> Any:
        context = FlowRunContext.get()
        try:
            with joining(workflow):
                return await function(*args, **kwargs)
        except (GroupRefused, QoSError) as error:
            if context is None or context.flow_run is None:
                raise
            return await asyncio.to_thread(_refused_state, context, context.flow_run, error)

    return run_whole


@contextmanager
def joining(workflow: Workflow) -> Iterator[None]:
    """Declare the group of this run; deadline flows that are called inside are its jobs.

    GroupRefused if its deadline cannot be promised. A process that is told to end leaves the group:
    its jobs go on, and a rerun with the same key attaches to them.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is not None:
        check_run(run, {}, WORKFLOW)
    key = workflow.idempotency_key or os.environ.get(ENV_IDEMPOTENCY_KEY)
    key = key or (f"flow-run/{run.id}" if run else None)
    client, name = Client(), job_name(workflow.title, key)
    document = workflow.document(name, run.expected_start_time if run else None)
    answer = client.submit_group(document)
    log = get_run_logger() if context else None
    if answer["state"] == "refused":
        raise GroupRefused(answer)
    if run is not None:
        _note_group(run, answer)
    if log is not None:
        log.info("%s: %s: %s", answer["id"], answer["verdict"], answer["reason"])
    kind = "hard" if answer["verdict"] == "promised" else "soft"
    deadline = format_rfc3339(answer["deadline_at"], "milliseconds")
    group = ActiveGroup(name, workflow.namespace, key or name, deadline, kind)
    token = ACTIVE.set(group)
    try:
        yield
    except Exception:
        if run is None or not is_retried(run):
            client.end_group(answer["id"], "failed")
        raise
    else:
        ended = client.end_group(answer["id"], "finished")
        if log is not None:
            log.info("%s: %s", answer["id"], ended["reason"])
    finally:
        ACTIVE.reset(token)


def _note_group(run: FlowRun, answer: dict[str, Any]) -> None:
    tags = {*run.tags, "laxity", f"class:{answer['class']}"}
    tags.add(f"deadline:{format_rfc3339(answer['deadline_at'])}")
    with get_client(sync_client=True) as api:
        api.update_flow_run(run.id, tags=sorted(tags))
        api.update_flow_run_labels(run.id, {LABEL_GROUP: answer["id"]})


def cancel_group(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Hook: the run is cancelled, and all of its trainings with it."""
    with get_client(sync_client=True) as api:
        group = api.read_flow_run(flow_run.id).labels.get(LABEL_GROUP)
    if group:
        try:
            Client(patience_s=5.0).end_group(str(group), "cancelled")
        except ServiceError as error:
            get_run_logger().warning("%s is not cancelled: %s", group, error)
