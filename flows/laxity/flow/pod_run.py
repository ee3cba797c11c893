"""A flow run that is itself the Job: its training is worker 0, not a job submitted elsewhere.

A pod that is told to go leaves its flow run as it is (Prefect's `relinquish`): the training saves,
Prefect's own signal goes on, and the next pod of the Job enters the same run again.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException, TerminationSignal
from prefect.flows import load_flow_from_flow_run
from prefect.states import Cancelled

from laxity.flow.declaration import Declaration
from laxity.flow.last_word import ENV_WORD, FAILED, TRAINING, USAGE
from laxity.flow.signature import read_call
from laxity.job.qos import QoSError
from laxity.stderr import say
from laxity.worker import __main__
from laxity.worker.code.environment import WorkerEnvironment
from laxity.worker.prefect_context import enter_run
from laxity.worker.sigterm import EXIT_RESTART, EXIT_STOPPED, SigtermHandler
from laxity.worker.training import Training, training_of
from laxity.worker.worker_run import WorkerRun

ENV_RUN: Final = "PREFECT__FLOW_RUN_ID"
IN_POOL: Final = (
    "the flow run itself is worker 0 there, and cannot begin anew at another width; let a served flow "
    "submit the job, or use laxity.pytorch"
)


class _Call:
    """The training function, called; what came of it."""

    def __init__(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        self._function, self._arguments = function, arguments
        self.result: Any = None
        self.error: BaseException | None = None

    def __call__(self, training: Training) -> Any:
        try:
            self.result = self._function(training, **self._arguments)
        except BaseException as error:
            self.error = error
            raise
        return self.result


def train_as_job(
    function: Callable[..., Any], declared: Declaration, arguments: Mapping[str, Any]
) -> Any:
    """Train in this flow run as worker 0 of its Job; raises what the training raises."""
    if launcher := declared.said.get("launcher"):
        raise QoSError("launcher", f"{launcher} is not for work pools: {IN_POOL}")
    word = Path(os.environ.get(ENV_WORD, os.devnull))
    word.write_text(TRAINING)
    call = _Call(function, arguments)
    code = EXIT_RESTART
    while code == EXIT_RESTART:  # another worker was lost: from the last checkpoint
        code = _train_call(call, declared)
    if code == EXIT_STOPPED:
        if _is_cancelled():
            return Cancelled(message=f"{declared.title} was cancelled while it trained")
        raise TerminationSignal(signal=signal.SIGTERM)
    if code != 0:
        word.write_text(FAILED)
        raise call.error or RuntimeError(f"{declared.title} ended with {code}; see the pod's log")
    word.write_text("")
    return call.result


def _is_cancelled() -> bool:
    """Whether the signal came because the run is cancelled in Prefect.

    Prefect's runner says so to Prefect's own signal handler only; a run whose process then ends by a
    signal would be Crashed until the runner says Cancelled, and hooks on crashes would be called.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return False
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(context.flow_run.id).state
    except (httpx.HTTPError, PrefectException, OSError) as error:
        say(f"Prefect does not say whether the run is cancelled: {error}")
        return False
    return state is not None and (state.is_cancelling() or state.is_cancelled())


def work_for_run() -> int:
    """One of the other workers of this pod's flow run; the exit code."""
    flow, run = asyncio.run(_flow_of(UUID(os.environ[ENV_RUN])))
    declared = getattr(flow.fn, "__laxity__", None)
    if declared is None:
        say(f"{flow.name} is no deadline_flow: it cannot use more than one worker; set widths to 1")
        return USAGE
    parameters = flow.validate_parameters(run.parameters)
    enter_run(flow, run)
    function = cast("Any", flow.fn).__wrapped__
    _, arguments = read_call(function, declared, (), parameters)
    return _train_call(_Call(function, arguments), declared)


def _train_call(call: _Call, declared: Declaration) -> int:
    termination = SigtermHandler()
    with _taking_signals(termination):
        environment = replace(
            WorkerEnvironment.of(os.environ),
            epochs=declared.epochs,
            model=declared.model,
            resumes=declared.resumes,
        )
        run = WorkerRun(environment, termination)
        return __main__.run_to_completion(run, termination, lambda: call(training_of(run)))


@contextmanager
def _taking_signals(termination: SigtermHandler) -> Iterator[None]:
    """SIGTERM is the training's while it trains, and Prefect's again afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    termination.install()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _flow_of(run_id: UUID) -> tuple[Any, FlowRun]:
    """The flow of this run, loaded as Prefect does, and the run."""
    async with get_client() as client:
        run = await client.read_flow_run(run_id)
    flow: Any = await load_flow_from_flow_run(run, use_placeholder_flow=False)
    return flow, run
