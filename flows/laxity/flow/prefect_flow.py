"""The Prefect side of `deadline_flow`: a real Flow whose body submits a job and follows it.

The declaration is kept on the flow's *function* (`flow.fn.__laxity__`), which Prefect hands through
`with_options`, subprocesses and deployments; attributes of a Flow object would be lost.
"""

import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.exceptions import TerminationSignal
from prefect.flows import Flow
from prefect.settings import PREFECT_SERVER_ANALYTICS_ENABLED, temporary_settings
from prefect.states import Cancelled
from prefect.tasks import Task
from prefect.utilities.hashing import file_hash
from prefect.utilities.urls import url_for

from laxity import names
from laxity.api.client import Client
from laxity.api.job_follower import JobFollower, Watcher, submit_patience_s
from laxity.api.status_text import TrainingCancelled, result_of
from laxity.flow.active_group import ACTIVE
from laxity.flow.declaration import OPTIONS, Declaration
from laxity.flow.deployed_name import entrypoint_of, flow_entrypoint
from laxity.flow.failed_states import (
    ERRORS,
    end_retries,
    is_retried,
    log_as_sentence,
    make_failed_state,
    note_error,
)
from laxity.flow.pool_variables import check_run, with_declared
from laxity.flow.run_notes import LABEL_JOB, NullWatcher, RunNotes
from laxity.flow.signature import ENV_ALONE, flow_signature, read_call, train_alone
from laxity.flow.torch_launch import launch_of_process
from laxity.job.parameters import FIELD, check_values, to_json
from laxity.job.qos import QoSError
from laxity.job.spec import TrainingSpec
from laxity.safe_text import without_secrets
from laxity.stderr import say
from laxity.worded_error import WordedError

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Flow[..., Any])

POOL_DEADLINE: Final = (
    "the parameter deadline has no effect in a work pool, where the Job has its verdict already: "
    "give the run --job-variable deadline=1h"
)
FOLLOW_PATIENCE_S: Final = 5.0  # an absent service is asked again and again, this long each time


class DeadlineFlow(Flow[P, R]):
    """A flow that is a training job: `with_options`, `serve`, `deploy`, schedules and hooks work."""

    _is_served = False

    if not TYPE_CHECKING:  # a caller sees Flow's own signature

        def __call__(self, *args: Any, **options: Any) -> Any:
            """As for any flow. A temporary server that Prefect starts for it sends no telemetry.

            On a new database that fails, and logs 130 lines at the first run of all. What laxity
            says in words is raised from here: Prefect's frames would bury it.
            """

            def run() -> Any:
                with temporary_settings(set_defaults={PREFECT_SERVER_ANALYTICS_ENABLED: False}):
                    return super(DeadlineFlow, self).__call__(*args, **options)

            errors = ERRORS.set([])
            try:
                _check_names(self, args, options)
                launch = launch_of_process()
                return run() if launch is None else launch.call(self.name, run)
            except WordedError as error:
                latest = [error, *ERRORS.get()][-1]
                raise latest.with_traceback(None) from None
            finally:
                ERRORS.reset(errors)

        def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
            """As for any flow; what does not fit is a QoSError in one sentence."""
            check_values(self._function, parameters)
            return super().validate_parameters(parameters)

    def with_options(self, **options: Any) -> "DeadlineFlow[P, R]":
        """As for any flow. The declaration stays, and so does the hook that cancels the job."""
        if options.get("on_cancellation") is not None:
            options["on_cancellation"] = [cancel_job, *_without_ours(options["on_cancellation"])]
        return as_deadline_flow(super().with_options(**options))

    def serve(self, *args: Any, **options: Any) -> None:
        """As for any flow. Its runs call this very object, except for a flow from a source."""
        self._is_served = self._storage is None
        super().serve(*args, **options)

    def to_deployment(self, *args: Any, **options: Any) -> Any:
        """As for any flow. Its job variables hand on what is declared, once it has a work pool.

        QoSError if its runs would import a flow with another declaration.
        """
        made = super().to_deployment(*args, **options)
        return self._hand_on_later(made) if inspect.isawaitable(made) else self._hand_on(made)

    def ato_deployment(self, *args: Any, **options: Any) -> Any:
        """As `to_deployment`, to be awaited."""
        return self._hand_on_later(super().ato_deployment(*args, **options))

    def deploy(self, name: str, *args: Any, **options: Any) -> Any:
        """As for any flow. What is declared becomes job variables, under those that are given.

        In a work pool of laxity's the Job has its verdict before any code of the flow runs. Elsewhere
        the flow submits the job; a job variable that has no effect there is a QoSError.
        """
        return super().deploy(name, *args, **self._for_pool(args, options))

    def adeploy(self, name: str, *args: Any, **options: Any) -> Any:
        """As `deploy`, to be awaited."""
        return super().adeploy(name, *args, **self._for_pool(args, options))

    def _for_pool(self, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
        pool = next(iter(args), options.get("work_pool_name"))
        given = options.get("job_variables") or {}
        return {**options, "job_variables": with_declared(self.declaration, given, pool)}

    async def _hand_on_later(self, made: Awaitable[Any]) -> Any:
        return self._hand_on(await made)

    def _hand_on(self, made: Any) -> Any:
        if made.work_pool_name:
            variables = with_declared(self.declaration, made.job_variables, made.work_pool_name)
            made.job_variables = variables
        else:
            from laxity.flow.late_pool import wait_for_pool  # Prefect imports this late as well

            wait_for_pool(made, self.declaration)
        if not self._is_served:
            made.entrypoint = entrypoint_of(
                self, self._function, made.entrypoint, made.job_variables
            )
        return made

    def with_qos(self, **options: Any) -> "DeadlineFlow[P, R]":
        """The same flow with another deadline, other workers, another idempotency key, ...

        Takes the options of `deadline_flow` that are not Prefect's; QoSError if they cannot be meant.
        """
        changed = as_deadline_flow(super().with_options())
        changed.fn = cast(
            "Any", _flow_body(self._function, self.declaration.with_changes(**options))
        )
        return changed

    def submit(self, *args: Any, **options: Any) -> Any:
        """Call it in the background, in a task of the flow that runs: a future, as of any task."""
        return self._as_task().submit(*args, **options)

    def map(self, *args: Any, **options: Any) -> Any:
        """Call it once for each element, in the background: a list of futures, as of any task."""
        return self._as_task().map(*args, **options)

    def _as_task(self) -> Task[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            return self(*args, **options)

        cast("Any", call).__signature__ = cast("Any", self.fn).__signature__
        return Task(call, name=self.name, cache_policy=NO_CACHE)

    def alone(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Train here and now, in this process: no job, no verdict, no Prefect."""
        declared, arguments = read_call(self._function, self.declaration, args, kwargs)
        return cast("R", train_alone(self._function, declared, arguments))

    def spec(self, *args: P.args, **kwargs: P.kwargs) -> TrainingSpec:
        """The job that a call with these parameters would submit, with a key of its own."""
        declared, arguments = read_call(self._function, self.declaration, args, kwargs)
        return _job_spec(declared, self._function, arguments, None)

    def whatif(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """The verdict that this call would get now, without submitting anything."""
        return Client().whatif(self.spec(*args, **kwargs).to_manifest())

    @property
    def declaration(self) -> Declaration:
        return cast("Declaration", cast("Any", self.fn).__laxity__)

    @property
    def _function(self) -> Callable[..., Any]:
        return cast("Callable[..., Any]", cast("Any", self.fn).__wrapped__)


def _check_names(flow: DeadlineFlow[..., Any], args: tuple[Any, ...], options: Any) -> None:
    """QoSError for a call whose arguments are not those of the flow, before a run is made of it."""
    of_prefect = ("return_state", "wait_for")
    signature = cast("Any", flow.fn).__signature__
    try:
        signature.bind(*args, **{k: v for k, v in options.items() if k not in of_prefect})
    except TypeError as error:
        raise QoSError(FIELD, f"{flow.name}{signature}: {error}") from None


def make_deadline_flow(
    function: Callable[..., Any], declared: Declaration, options: Mapping[str, Any]
) -> DeadlineFlow[..., Any]:
    """A DeadlineFlow whose function stands for the user's, with its name, file and version."""
    _check_flow_options(options)
    flow_options = {"version": _file_version(function), **options}
    flow_options["on_cancellation"] = [cancel_job, *(flow_options.get("on_cancellation") or [])]
    made = DeadlineFlow(_flow_body(function, declared), **flow_options)
    made._entrypoint = flow_entrypoint(function)  # noqa: SLF001 - it would name this file
    return made


def _check_flow_options(options: Mapping[str, Any]) -> None:
    """QoSError for an option that is neither laxity's nor Prefect's."""
    of_prefect = inspect.signature(Flow.__init__).parameters
    for name in options:
        if name not in of_prefect:
            nearest = get_close_matches(name, [*OPTIONS, *of_prefect], n=1, cutoff=0.0)[0]
            raise QoSError(name, f"no such option of deadline_flow; the nearest is {nearest}")


def _flow_body(function: Callable[..., Any], declared: Declaration) -> Callable[..., Any]:
    """The flow's function: the user's signature without `training`, and the declaration on it."""

    @functools.wraps(function)
    def submit_and_follow(*args: Any, **kwargs: Any) -> Any:
        context = FlowRunContext.get()
        run = context.flow_run if context else None
        try:
            if run:
                check_run(run, declared.job_variables())
            of_run, arguments = read_call(function, declared, args, kwargs)
            if of_run is not declared and os.environ.get(names.ENV_POOL):
                say(POOL_DEADLINE)
            return _run_flow(function, of_run, arguments, run)
        except WordedError as error:
            if context is None or run is None:
                raise
            with get_client(sync_client=True) as api:
                run = end_retries(api, run, error)
            note_error(error)
            if is_retried(run):
                log_as_sentence()
                raise  # Prefect's engine retries what is raised, and hangs on a state
            return make_failed_state(context, error)

    body = cast("Any", submit_and_follow)
    body.__signature__ = flow_signature(function)
    body.__annotations__ = {
        name: parameter.annotation
        for name, parameter in body.__signature__.parameters.items()
        if parameter.annotation is not parameter.empty
    }
    body.__laxity__ = declared
    return submit_and_follow


def _run_flow(
    function: Callable[..., Any],
    declared: Declaration,
    arguments: Mapping[str, Any],
    run: FlowRun | None,
) -> Any:
    """One flow run. Its end by a signal leaves the job alone, unless the run is being cancelled."""
    if os.environ.get(ENV_ALONE):
        return train_alone(function, declared, arguments)
    if os.environ.get(names.ENV_POOL) and os.environ.get(names.ENV_JOB):
        from laxity.flow.pod_run import train_as_job

        return train_as_job(function, declared, arguments)
    spec, context = _job_spec(declared, function, arguments, run), FlowRunContext.get()
    if context is None or run is None:
        return result_of(submit_and_await(spec.to_manifest(), NullWatcher()))
    with get_client(sync_client=True) as api:
        notes = RunNotes(api, run, spec, declared.tags)
        manifest = spec.to_manifest()
        follow_in(manifest, api, run, log_prints=context.log_prints)
        try:
            return result_of(submit_and_await(manifest, notes))
        except TrainingCancelled as error:
            if notes.should_cancel():
                _call_cancellation_hooks(context.flow, run)
            return Cancelled(message=str(error))
        except (TerminationSignal, KeyboardInterrupt):
            notes.on_interrupt()
            raise


def submit_and_await(manifest: Mapping[str, Any], watcher: Watcher) -> Any:
    client = Client(patience_s=FOLLOW_PATIENCE_S)
    return JobFollower(client, watcher, submit_patience_s=submit_patience_s(client.url)).run(
        manifest
    )


def follow_in(
    manifest: Mapping[str, Any], api: SyncPrefectClient, run: FlowRun, *, log_prints: bool
) -> None:
    """Tell the job which flow run follows it: its workers log there, and its MLflow run links there."""
    # Its Job shows it: who logs in there is said by the worker's own environment.
    address = without_secrets(f"{str(api.api_url).rstrip('/')}/flow_runs/{run.id}")
    manifest["metadata"]["annotations"][names.FOLLOWED_BY] = url_for(run) or address
    env = {names.ENV_FLOW_RUN: address}
    env |= {names.ENV_LOG_PRINTS: "true"} if log_prints else {}
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["env"] += [{"name": name, "value": value} for name, value in env.items()]


def _job_spec(
    declared: Declaration,
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    run: FlowRun | None,
) -> TrainingSpec:
    """The job of this call. Its deadline counts from the run's scheduled start, also in a retry."""
    project, parameters = declared.project(function), to_json(function, arguments)
    run_id, group = str(run.id) if run else "", ACTIVE.get()
    key = declared.idempotency_key(arguments, parameters, run_id)
    if group is not None:
        declared = group.join(declared)
        if not declared.said.get("idempotency_key"):
            key = group.key_of(declared.title, parameters, run_id)
    return declared.spec(
        entry=project.entry,
        parameters=parameters,
        idempotency_key=key,
        submitted_at=run.expected_start_time if run else None,
        env=project.env,
        workdir=project.workdir,
    )


def cancel_job(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Hook: the runner has ended the flow's process because the run is cancelled."""
    with get_client(sync_client=True) as api:
        job = api.read_flow_run(flow_run.id).labels.get(LABEL_JOB)
    if job:
        JobFollower(Client(patience_s=FOLLOW_PATIENCE_S), NullWatcher()).cancel(str(job))


def _call_cancellation_hooks(flow: Flow[..., Any] | None, run: FlowRun) -> None:
    """The user's own hooks, where no runner would call them (a script, a subflow)."""
    owned = os.environ.get("PREFECT__ENABLE_CANCELLATION_AND_CRASHED_HOOKS", "true") == "true"
    if flow is None or not owned:
        return
    with get_client(sync_client=True) as api:
        state = api.read_flow_run(run.id).state
    for hook in _without_ours(flow.on_cancellation_hooks):
        if state is not None:
            hook(flow, run, state)


def _without_ours(hooks: Any) -> list[Any]:
    return [hook for hook in hooks if hook is not cancel_job]


def as_deadline_flow(flow: Flow[P, R]) -> DeadlineFlow[P, R]:
    """Prefect builds a plain Flow of our parts; it holds nothing that a DeadlineFlow would not."""
    flow.__class__ = DeadlineFlow
    return cast("DeadlineFlow[P, R]", flow)


def _file_version(function: Callable[..., Any]) -> str | None:
    """A hash of the user's file, as Prefect has it for plain flows."""
    try:
        file = inspect.getsourcefile(function)
        return file_hash(file) if file else None
    except (OSError, TypeError):
        return None
