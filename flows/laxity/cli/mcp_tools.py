"""`laxity mcp`: what an agent may ask and do, as tools of the Model Context Protocol over stdio.

Each tool is one call of the service's API, with the rights of the token that this process finds, as any
other command does. Functions and files are read here, as `laxity submit` reads them. Instants are POSIX
seconds. What code prints while it is imported goes to standard error: standard output is the protocol.
"""

import functools
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from laxity import names
from laxity.api.client import Client, ServiceError
from laxity.api.job_view import Json
from laxity.cli.commands_jobs import await_verdict
from laxity.cli.exit_codes import CommandError
from laxity.cli.group_files import is_group, submit_group
from laxity.cli.job_source import OPTION, job_manifests, zoned_deadline

if TYPE_CHECKING:
    from mcp.server import MCPServer

INSTRUCTIONS = (
    "laxity promises or refuses deadlines of training jobs. Ask whatif before submit: it says whether "
    "a deadline would be promised, and what would be instead. A refused job has offers; accept takes one."
)


def make_server() -> "MCPServer":
    """The server with its tools; nothing is asked of the service yet."""
    from mcp.server import MCPServer

    server = MCPServer("laxity", instructions=INSTRUCTIONS, version=version("laxity"))
    for tool in (whatif, submit, show, explain, offers, accept, ls, cluster):
        server.tool()(_told_to_the_agent(tool))
    return server


def _told_to_the_agent(tool: Callable[..., Any]) -> Callable[..., Any]:
    """The tool with its errors as texts that the agent reads."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def call(**arguments: Any) -> Any:
        try:
            return tool(**arguments)
        except (CommandError, ServiceError) as error:
            raise ToolError(str(error)) from error

    return call


class JobOptions(BaseModel):
    """What is declared of a job; it wins over the file or function."""

    model_config = ConfigDict(extra="forbid")

    deadline: str | None = None
    service_class: Literal["hard", "soft", "best_effort"] | None = None
    workers: str | None = None
    epochs: int | None = None
    model: str | None = None
    epoch_estimate: str | None = None
    wall_limit: str | None = None
    idempotency_key: str | None = None


def whatif(
    source: str,
    options: JobOptions | None = None,
    params: dict[str, Any] | None = None,
    name: str | None = None,
    namespace: str | None = None,
) -> list[Json]:
    """Say what verdict jobs would get, and what would be promised instead. Nothing is submitted.

    source: a YAML file of batch/v1 Jobs, or a function such as /path/train.py:fn, called with params.
    options: such as {"deadline": "2h", "epochs": 30, "epoch_estimate": "1m"}.
    """
    jobs = _manifests(source, options or JobOptions(), params or {}, name, namespace)
    return [_client().whatif(job) for job in jobs]


def submit(
    source: str,
    options: JobOptions | None = None,
    params: dict[str, Any] | None = None,
    name: str | None = None,
    namespace: str | None = None,
) -> list[Json]:
    """Submit jobs, as whatif takes them; their verdicts. A second one with the same key attaches.

    Jobs of one file that come after one another are a group: its one verdict, with its jobs.
    """
    client, declared = _client(), options or JobOptions()
    jobs = _manifests(source, declared, params or {}, name, namespace)
    if is_group(jobs):
        return [submit_group(client, jobs, source, declared.idempotency_key)[0]]
    ids = [client.submit(job).id for job in jobs]
    return [dict(await_verdict(client, job).raw) for job in ids]


def show(job: str) -> Json:
    """One job: state, verdict with its reason, deadline, P50 and P90 of its end, epochs, error."""
    return dict(_client().job(job).raw)


def explain(job: str) -> Json:
    """Why a job is where it is, decision by decision, and whom it waits for."""
    return _client().explain(job)


def offers(job: str) -> list[Json]:
    """What would be promised instead to a refused job. accept takes one by its number, from 1."""
    return list(show(job).get("offers") or [])


def accept(job: str, offer: int = 1) -> Json:
    """Take an offer of a refused job: it asks again with it. Its new verdict."""
    client = _client()
    return dict(await_verdict(client, client.accept(job, offer).id).raw)


def ls(namespace: str | None = None) -> list[Json]:
    """All jobs that the token may see."""
    return [dict(job.raw) for job in _client().jobs(namespace)]


def cluster() -> Json:
    """Nodes with their free GPUs, and how many promises were kept."""
    return _client().cluster()


def _client() -> Client:
    return Client(patience_s=5.0)


def _manifests(
    source: str, options: JobOptions, params: Json, name: str | None, namespace: str | None
) -> list[Json]:
    """The Jobs of a file or function; CommandError says what is wrong with it."""
    values = options.model_dump()
    given = {key: values.get(option) for key, option in OPTION.items()}
    texts = {key: None if value is None else str(value) for key, value in given.items()}
    pairs = [f"{key}={json.dumps(value)}" for key, value in params.items()]
    deadline = texts[names.DEADLINE]
    texts[names.DEADLINE] = deadline and zoned_deadline(deadline)
    with redirect_stdout(sys.stderr):
        return job_manifests(source, texts, name=name, namespace=namespace, params=pairs)
