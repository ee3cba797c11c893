"""The FastAPI app of one service: its routes, its limits, and what its errors look like."""

import errno
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from laxity.job.qos import QoSError
from laxity_profiler.history.history import HistoryError
from laxity_scheduler.http import cluster_routes, group_routes, job_routes, loan_routes, page_routes
from laxity_scheduler.http.gate import Gate
from laxity_scheduler.http.group_service import GroupService
from laxity_scheduler.http.job_service import JobService
from laxity_scheduler.http.job_views import MAX_SIMILAR
from laxity_scheduler.http.responses import Problem, problem_response
from laxity_scheduler.http.sessions import Sessions
from laxity_scheduler.http.tokens import Caller, Tokens
from laxity_scheduler.http.worker_calls import ConflictError
from laxity_scheduler.live import DuplicateJobError, UnknownJobError
from laxity_scheduler.service.group_cycle.group_book import UnknownGroupError
from laxity_scheduler.service.loop import NotReadyError, Service
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.store import StoreError

LOG: Final = logging.getLogger(__name__)
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
DISK_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
CODES = {401: "unauthorized", 404: "not_found", 405: "method_not_allowed", 409: "conflict"}


def create_app(service: Service, job_service: JobService, tokens: Tokens) -> FastAPI:
    """An app that owns the service's loop: it runs from the app's start to its end."""
    app = FastAPI(
        title="laxity",
        description="Deadlines for deep-learning training.",
        lifespan=_make_lifespan(service),
        telemetry={"tracing": False},
        docs_url=None,  # Swagger's scripts come from a CDN; ours is `api_reference`
        redoc_url=None,
    )
    app.state.service, app.state.job_service = service, job_service
    app.state.group_service = GroupService(service, job_service)
    app.state.sessions = Sessions(tokens)
    app.include_router(job_routes.router)
    app.include_router(group_routes.router)
    app.include_router(cluster_routes.router)
    app.include_router(loan_routes.router)
    app.include_router(page_routes.router)
    app.add_middleware(
        Gate, tokens=tokens, hosts=names_of_host(service.settings), sessions=app.state.sessions
    )
    for kind, answer in _HANDLERS.items():
        app.add_exception_handler(kind, answer)
    return app


def names_of_host(settings: Settings) -> list[str]:
    """The host names by which a service on loopback may be called; [] for any, beyond loopback."""
    if not settings.is_loopback:
        return []
    public = urlsplit(settings.public_url).hostname
    return [*LOOPBACK, *([public] if public else [])]


def _make_lifespan(service: Service) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = Thread(target=service.run, name="laxity-loop", daemon=True)
        loop.start()
        yield
        service.stop()
        loop.join(timeout=30.0)

    return lifespan


async def _answer_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - registered for this kind only
    return error.to_response()


async def _answer_invalid_job(request: Request, error: Exception) -> Response:
    assert isinstance(error, QoSError)  # noqa: S101 - registered for this kind only
    return problem_response(422, "invalid", str(error), error.field)


async def _answer_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this kind only
    first: dict[str, Any] = error.errors()[0] if error.errors() else {}
    where = ".".join(str(part) for part in first.get("loc", ())[1:])
    return problem_response(
        422, "invalid", str(first.get("msg", "the request makes no sense")), where
    )


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this kind only
    code = CODES.get(error.status_code, f"http_{error.status_code}")
    message = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:  # an unknown job has its own answer
        message = f"there is no {request.method} {request.url.path[:200]} here; /docs lists what is"
    return problem_response(error.status_code, code, message)


async def _answer_unknown_job(request: Request, error: Exception) -> Response:
    job_id = str(error.args[0]) if error.args else ""
    caller: Caller | None = request.state.caller
    similar: list[str] = []
    if caller is not None and not caller.is_worker:  # a worker is told of its own job only
        similar = await run_in_threadpool(request.app.state.job_service.views.similar_ids, job_id)
        groups = await run_in_threadpool(request.app.state.group_service.list_groups, caller.may)
        alike = [row for row in reversed(groups) if row["id"].startswith(job_id)]
        similar += [f"the {row['kind']} {row['id']}" for row in alike[:MAX_SIMILAR]]
    others = f"; did you mean {' or '.join(similar)}?" if similar else ""
    return problem_response(404, "not_found", f"there is no job {job_id}{others}")


async def _answer_unknown_group(request: Request, error: Exception) -> Response:
    return problem_response(404, "not_found", f"there is no group {error.args[0]}")


def _answer_in_its_words(status: int, code: str) -> Callable[..., Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        return problem_response(status, code, str(error))

    return answer


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    """Errors of the World carry an HTTP status; any other is an error of the service."""
    status = getattr(error, "status", None)
    if isinstance(status, int) and 400 <= status < 500:
        return problem_response(status, CODES.get(status, "invalid"), str(error))
    if isinstance(status, int):
        return problem_response(503, "cluster_away", str(error))
    if _is_locked(error):
        message = f"another process writes to the service's database ({error}); nothing was taken: ask again"
        return problem_response(503, "not_ready", message)
    if _has_no_room(error):
        LOG.error("%s %s: %s", request.method, request.url.path, error)
        message = (
            f"the service cannot write to its disk ({error}); nothing was taken: make room there"
        )
        return problem_response(503, "no_room", message)
    LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(500, "internal", f"{type(error).__name__}: see the service's log")


def _is_locked(error: Exception) -> bool:
    """Whether SQLite waited in vain for another writer."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _has_no_room(error: Exception) -> bool:
    """Whether a write failed because of the disk, not because of its content."""
    is_sql = isinstance(error, sqlite3.OperationalError)
    return is_sql or (isinstance(error, OSError) and error.errno in DISK_ERRORS)


_HANDLERS: dict[type[Exception], Any] = {
    Problem: _answer_problem,
    QoSError: _answer_invalid_job,
    RequestValidationError: _answer_invalid_request,
    HTTPException: _answer_http_error,
    UnknownJobError: _answer_unknown_job,
    UnknownGroupError: _answer_unknown_group,
    DuplicateJobError: _answer_in_its_words(409, "duplicate"),
    ConflictError: _answer_in_its_words(409, "conflict"),
    **dict.fromkeys(
        (NotReadyError, StoreError, HistoryError), _answer_in_its_words(503, "not_ready")
    ),
    # named, not left to Exception: of what only that answers the server logs a traceback as well
    **dict.fromkeys((RuntimeError, OSError, sqlite3.Error), _answer_unexpected),
    Exception: _answer_unexpected,
}
