"""The FastAPI app of one service: its routes, its limits, and what its errors look like."""

import errno
import sqlite3
from collections.abc import AsyncIterator, Callable
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
from laxity_scheduler.http.gate import Gate
from laxity_scheduler.http.job_service import ConflictError, Desk
from laxity_scheduler.http.responses import Problem, problem
from laxity_scheduler.http.routes import LOG, router
from laxity_scheduler.http.tokens import Caller, Tokens
from laxity_scheduler.live import DuplicateJobError, UnknownJobError
from laxity_scheduler.service.loop import NotReadyError, Service
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.store import StoreError

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
CODES = {401: "unauthorized", 404: "not_found", 405: "method_not_allowed", 409: "conflict"}


def create_app(service: Service, desk: Desk, tokens: Tokens) -> FastAPI:
    """An app that owns the service's loop: it runs from the app's start to its end."""
    app = FastAPI(
        title="laxity",
        description="Deadlines for deep-learning training.",
        lifespan=_lifespan(service),
        telemetry={"tracing": False},
        docs_url=None,  # Swagger's scripts come from a CDN; ours is web.reference
        redoc_url=None,
    )
    app.state.service, app.state.desk = service, desk
    app.include_router(router)
    app.add_middleware(Gate, tokens=tokens, hosts=hosts(service.settings))
    for kind, answer in _ANSWERS.items():
        app.add_exception_handler(kind, answer)
    return app


def hosts(settings: Settings) -> list[str]:
    """The names under which a service on loopback may be called; beyond it, any."""
    if not settings.loopback:
        return []
    public = urlsplit(settings.public_url).hostname
    return [*LOOPBACK, *([public] if public else [])]


def _lifespan(service: Service) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loop = Thread(target=service.run, name="laxity-loop", daemon=True)
        loop.start()
        yield
        service.stop()
        loop.join(timeout=30.0)

    return lifespan


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - registered for this kind only
    return error.answer()


async def _invalid_job(request: Request, error: Exception) -> Response:
    assert isinstance(error, QoSError)  # noqa: S101 - registered for this kind only
    return problem(422, "invalid", str(error), error.field)


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this kind only
    first: dict[str, Any] = error.errors()[0] if error.errors() else {}
    where = ".".join(str(part) for part in first.get("loc", ())[1:])
    return problem(422, "invalid", str(first.get("msg", "the request makes no sense")), where)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this kind only
    code = CODES.get(error.status_code, f"http_{error.status_code}")
    said = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:  # a job that is not there is answered elsewhere
        said = f"there is no {request.method} {request.url.path[:200]} here; /docs lists what is"
    return problem(error.status_code, code, said)


async def _unknown_job(request: Request, error: Exception) -> Response:
    job_id = str(error.args[0]) if error.args else ""
    caller: Caller | None = request.state.caller
    alike = []
    if caller is not None and not caller.is_worker:  # a worker is told of its own job only
        alike = await run_in_threadpool(request.app.state.desk.alike, job_id)
    others = f"; there is {' and '.join(alike)}" if alike else ""
    return problem(404, "not_found", f"there is no job {job_id}{others}")


async def _duplicate(request: Request, error: Exception) -> Response:
    return problem(409, "duplicate", str(error))


async def _conflict(request: Request, error: Exception) -> Response:
    return problem(409, "conflict", str(error))


async def _not_ready(request: Request, error: Exception) -> Response:
    return problem(503, "not_ready", str(error))


async def _unexpected(request: Request, error: Exception) -> Response:
    """The World's own refusals carry an HTTP status; anything else is ours."""
    status = getattr(error, "status", None)
    if isinstance(status, int) and 400 <= status < 500:
        return problem(status, CODES.get(status, "invalid"), str(error))
    if isinstance(status, int):
        return problem(503, "cluster_away", str(error))
    if _has_no_room(error):
        LOG.error("%s %s: %s", request.method, request.url.path, error)
        words = (
            f"the service cannot write to its disk ({error}); nothing was taken: make room there"
        )
        return problem(503, "no_room", words)
    LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, "internal", f"{type(error).__name__}: see the service's log")


def _has_no_room(error: Exception) -> bool:
    """Whether a write failed for the disk, and not for what was to be written."""
    is_sql = isinstance(error, sqlite3.OperationalError)
    return is_sql or (isinstance(error, OSError) and error.errno in NO_ROOM)


_ANSWERS: dict[type[Exception], Any] = {
    Problem: _problem,
    QoSError: _invalid_job,
    RequestValidationError: _invalid_request,
    HTTPException: _http_error,
    UnknownJobError: _unknown_job,
    DuplicateJobError: _duplicate,
    ConflictError: _conflict,
    NotReadyError: _not_ready,
    StoreError: _not_ready,
    HistoryError: _not_ready,
    RuntimeError: _unexpected,
    Exception: _unexpected,
}
