"""How a flow run ends whose training ends without a result: in a state with a sentence.

A retry asks again what may be answered otherwise by then: what failed, and a deadline for which the
capacity was lacking. Any other refusal is final, as waiting only brings the deadline nearer.

Prefect logs what a flow raises with a traceback. Of an error that the service answered, or a worker
reported, that shows only the frames between Prefect and laxity. So the last try returns a state, and
what Prefect logs all the same, before a retry or at the end of a deployment's run, is the sentence.
"""

import logging
from contextvars import ContextVar
from typing import Any, cast

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.logging.loggers import get_logger
from prefect.states import exception_to_failed_state
from prefect.utilities.asyncutils import run_coro_as_sync

from laxity.api.status_text import DeadlineRefused
from laxity.job.qos import QoSError
from laxity.worded_error import WordedError

ERRORS: ContextVar[list[WordedError]] = ContextVar("errors")  # of the tries of a call


def note_error(error: WordedError) -> None:
    """Keep it for the caller: Prefect raises that of the first try.

    A function of its own: a body that Prefect pickles by value may name no ContextVar.
    """
    ERRORS.get([]).append(error)


def is_retried(run: FlowRun) -> bool:
    """Whether Prefect answers a failure of this run with another try: its server's own rule."""
    return run.run_count <= (run.empirical_policy.retries or 0)


def end_retries(api: SyncPrefectClient, run: FlowRun, error: Exception) -> FlowRun:
    """The run as it is now, without further tries if the error would only come again."""
    now = api.read_flow_run(run.id)
    is_refused = isinstance(error, DeadlineRefused) and error.is_final
    if (is_refused or isinstance(error, QoSError)) and is_retried(now):
        now.empirical_policy.retries = 0
        api.update_flow_run(run.id, empirical_policy=now.empirical_policy)
    return now


def make_failed_state(context: FlowRunContext, error: Exception) -> State[Any]:
    """Failed, by the name Refused for a refusal, without a traceback; callers get the exception."""
    log_as_sentence()
    stored = exception_to_failed_state(error, result_store=context.result_store, write_result=True)
    state = cast("State[Any]", run_coro_as_sync(stored))
    state.message = str(error)
    if isinstance(error, DeadlineRefused):
        state.name = "Refused"
    return state


def log_as_sentence() -> None:
    """Let the logs of flow runs show these errors without a traceback."""
    get_logger("flow_runs").addFilter(_as_sentence)  # once, however often it is added


def _as_sentence(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, WordedError):
        record.msg, record.args, record.exc_info = "%s", (str(error),), None
    return True
