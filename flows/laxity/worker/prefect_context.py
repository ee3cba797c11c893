"""Prefect's habits inside a worker: `get_run_logger`, `log_prints`, and tasks.

The training code runs in another process than the flow, where Prefect knows of no run. Once the code
imports Prefect, it finds itself in the context of the flow run that follows the job: log lines and
task runs go there. laxity imports Prefect here only for `log_prints`, so a training that does not
use it does not pay for it. When another run attaches to the job, lines go there from then on. Where no run follows the job, or its API cannot be reached, loggers write
to stderr (`laxity logs`) and tasks run as they do in any script.
"""

import base64
import json
import logging
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from laxity import names
from laxity.http_login import request_to
from laxity.stderr import say
from laxity.worker.code.import_hooks import when_imported

if TYPE_CHECKING:
    from prefect import Flow
    from prefect.client.schemas.objects import FlowRun

ANSWER_S: Final = 10.0  # a busy server takes seconds
FLUSH_S: Final = 3.0
_API: Final = "PREFECT_API_URL"
_PATH: Final = "/flow_runs/"
_ENTERED: Final = ExitStack()  # for the life of this process


def watch_imports(environ: Mapping[str, str], newest: Callable[[], str], *, leads: bool) -> None:
    """Enter the flow run's context as soon as the code imports Prefect. Only worker 0's prints go there.

    `newest` says the id of the flow run that attached last, "" while that is not known.
    """
    if not environ.get(names.ENV_JOB) or environ.get(names.ENV_POOL):
        return
    context: dict[str, Any] = {}

    def before() -> None:
        context.update(_find_run(environ, newest()))
        if not context:
            os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"

    def enter_it(_prefect: ModuleType) -> None:
        from prefect import Flow
        from prefect.client.schemas.objects import FlowRun

        flow = Flow(_empty_flow, name=environ.get(names.ENV_MODEL) or "training")
        prints = leads and bool(context) and bool(environ.get(names.ENV_LOG_PRINTS))
        run = FlowRun.model_validate(context) if context else None
        enter_run(flow, run, log_prints=prints)
        if run is not None:
            follow = Newest(run, newest, lambda run_id: _read_run(environ, run_id))
            for name in ("prefect.flow_runs", "prefect.task_runs"):
                logging.getLogger(name).addFilter(follow)

    when_imported("prefect", enter_it, before=before)


class Newest(logging.Filter):
    """Sends the log lines of a flow run to the one that follows the job by then."""

    def __init__(
        self, run: "FlowRun", newest: Callable[[], str], read: Callable[[str], dict[str, Any]]
    ) -> None:
        super().__init__()
        self._run, self._newest, self._read = run, newest, read
        self._asked = str(run.id)
        self._left: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        self._look_again()
        if getattr(record, "flow_run_id", "") in self._left:  # not that of a flow of the user's own
            record.flow_run_id, record.flow_run_name = str(self._run.id), self._run.name
        return True

    def _look_again(self) -> None:
        """Tasks that are called from now on are those of the other run, too: its context has it."""
        newest = self._newest()
        if newest in {"", self._asked}:
            return
        self._asked = newest
        try:
            other = self._run.model_validate(self._read(newest))
        except (OSError, ValueError) as error:
            say(f"flow run {newest} follows this job now and is not found: {error}")
            return
        self._left.add(str(self._run.id))
        self._run.id, self._run.name = other.id, other.name


def enter_run(flow: "Flow[..., Any]", run: "FlowRun | None", *, log_prints: bool = False) -> None:
    """Let this process be in that flow run, from now to its end."""
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.context import FlowRunContext
    from prefect.filesystems import LocalFileSystem, NullFileSystem
    from prefect.logging.loggers import patch_print
    from prefect.results import get_result_store
    from prefect.settings import get_current_settings

    results: Any = get_result_store()
    if run is None:  # a server would be asked for its default, and started for that
        folder = LocalFileSystem(basepath=str(get_current_settings().results.local_storage_path))
        update = {"result_storage": folder, "metadata_storage": NullFileSystem()}
        results = results.model_copy(update=update)
    else:
        results = results.update_for_flow(flow, _sync=True)
    context: Any = FlowRunContext(
        flow=flow,
        client=SyncPrefectClient(os.environ.get(_API) or "http://127.0.0.1:4200/api"),
        flow_run=run,
        task_runner=_ENTERED.enter_context(flow.task_runner.duplicate()),
        result_store=results,
        log_prints=log_prints,
        parameters={},
    )
    _ENTERED.enter_context(context)
    if log_prints:
        _ENTERED.enter_context(patch_print())


def print_to_log(environ: Mapping[str, str]) -> None:
    """The flow has log_prints: import Prefect, so that prints are lines of the run's log."""
    if not environ.get(names.ENV_LOG_PRINTS) or environ.get(names.ENV_POOL):
        return
    if find_spec("prefect") is None:
        say("log_prints: Prefect is not installed here; prints are in laxity logs")
        return
    import prefect  # noqa: F401 - see `watch_imports`


def flush_logs() -> None:
    """Let log lines and task runs out, for a few seconds at most."""
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for service in (APILogWorker, EventsWorker):
        service.drain_all(timeout=FLUSH_S)


def _find_run(environ: Mapping[str, str], newest: str) -> dict[str, Any]:
    """The flow run as its API answers it; empty where there is none, or no API in reach.

    The environment's own API comes first: a pod may know it by another address than the flow does.
    """
    api, is_followed, run_id = environ.get(names.ENV_FLOW_RUN, "").partition(_PATH)
    problems = []
    for url in dict.fromkeys(filter(None, (environ.get(_API, "").rstrip("/"), api))):
        if not is_followed:
            break
        try:
            run = _read_run({**environ, _API: url}, newest or run_id)
        except (OSError, ValueError) as error:
            problems.append(f"{url}: {error}")
        else:
            os.environ[_API] = url
            return run
    if problems:
        say(f"no Prefect API in reach ({'; '.join(problems)}): its log lines are in laxity logs")
    return {}


def _read_run(environ: Mapping[str, str], run_id: str) -> dict[str, Any]:
    """What the API of this environment answers; OSError or ValueError if it does not."""
    url, headers = f"{environ[_API]}{_PATH}{run_id}", dict(_read_credentials(environ))
    request = request_to(url, headers=headers)
    with closing(urllib.request.urlopen(request, timeout=ANSWER_S)) as answer:  # noqa: S310
        document = json.load(answer)
    return dict(document)  # ValueError unless it is an object


def _read_credentials(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if key := environ.get("PREFECT_API_KEY"):
        yield "Authorization", f"Bearer {key}"
    elif auth := environ.get("PREFECT_API_AUTH_STRING"):
        yield "Authorization", f"Basic {base64.b64encode(auth.encode()).decode()}"


def _empty_flow() -> None:
    """What the flow of the context would run."""
