"""The page at `/`: its files, signing in, and the calls that only it makes."""

import gzip
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from laxity.instants import LAST_AT
from laxity_scheduler.http.charts.timeline import TimelineSpan
from laxity_scheduler.http.dependencies import Jobs, TheCaller, TheService
from laxity_scheduler.http.gate import NO_TOKEN, SESSION_PATH, WRONG_TOKEN
from laxity_scheduler.http.long_poll import MAX_POLL_S, loop_time, wait_for_change
from laxity_scheduler.http.page_files import HEADERS, INDEX, embedded_headers, read_page_file
from laxity_scheduler.http.responses import ERRORS, JsonResponse, Problem
from laxity_scheduler.http.sessions import SESSION_S, Sessions
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.service_clock import CLOCK

DAY_S: Final = 86_400.0
HOUR_S: Final = 3_600.0
POSIX: Final = "POSIX seconds."

router = APIRouter(responses=ERRORS)


@router.get("/", include_in_schema=False)
async def page(service: TheService, embed: str = "") -> Response:
    """The page; it asks who has no cookie for a token. With `embed`, frames of some origins show it."""
    answer = _page_file(INDEX)
    if embed and service.settings.embed_origins:
        answer.headers.update(embedded_headers(service.settings.embed_origins))
    return answer


@router.get("/page/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    """A file of the page."""
    return _page_file(name)


def _page_file(name: str) -> Response:
    try:
        content, media_type = read_page_file(name)
    except KeyError:
        raise Problem(404, "not_found", "the page has no such file") from None
    return Response(content, media_type=media_type, headers=HEADERS)


@router.post(SESSION_PATH)
async def sign_in(request: Request) -> Response:
    """Set a cookie that opens reading and the page's actions, for `Authorization: Bearer TOKEN` or `Code CODE`."""
    sent = request.headers.get("authorization", "")
    sessions: Sessions = request.app.state.sessions
    cookie = sessions.cookie_for(sent)
    if cookie is None:
        raise Problem(401, "unauthorized", WRONG_TOKEN if sent else NO_TOKEN)
    answer = JsonResponse({"signed_in": True})
    is_https = request.url.scheme == "https" or _public_scheme(request) == "https"
    answer.set_cookie(
        sessions.cookie_name, cookie, max_age=SESSION_S, secure=is_https, httponly=True, samesite="strict"
    )  # fmt: skip
    return answer


@router.delete(SESSION_PATH)
async def sign_out(request: Request) -> Response:
    """Make the browser forget its cookie."""
    answer = JsonResponse({"signed_in": False})
    answer.delete_cookie(request.app.state.sessions.cookie_name, httponly=True, samesite="strict")
    return answer


@router.post(f"{SESSION_PATH}/code")
async def session_code(request: Request, caller: TheCaller) -> Response:
    """A code that signs a browser in, once and within a minute."""
    sessions: Sessions = request.app.state.sessions
    cookie = sessions.cookie_for(request.headers.get("authorization", ""))
    assert cookie is not None  # noqa: S101 - the gate let its token in
    return JsonResponse({"code": sessions.new_code(cookie)})


def _public_scheme(request: Request) -> str:
    public_url: str = request.app.state.service.settings.public_url
    return public_url.partition(":")[0]


@router.get("/v1/timeline")
async def timeline(
    *,
    request: Request,
    job_service: Jobs,
    service: TheService,
    caller: TheCaller,
    from_at: Annotated[
        float | None, Query(alias="from", description=POSIX, ge=0, le=LAST_AT)
    ] = None,
    to_at: Annotated[float | None, Query(alias="to", description=POSIX, ge=0, le=LAST_AT)] = None,
    wait_s: Annotated[float, Query(ge=0, le=3600)] = 0.0,
    seen: str = "",
) -> Response:
    """Jobs and GPUs over time, as columns; with `wait_s`, once the revision is not `seen`."""
    since = CLOCK.now() // HOUR_S * HOUR_S - DAY_S if from_at is None else from_at
    window = TimelineSpan(since, float("inf") if to_at is None else to_at, caller.may)
    end_at = loop_time() + min(wait_s, MAX_POLL_S)
    with service.notifier.subscribe("cycle") as changed:
        answer = await run_in_threadpool(job_service.views.timeline, window)
        while answer["revision"] == seen and loop_time() < end_at:
            await wait_for_change(service, changed, end_at)
            answer = await run_in_threadpool(job_service.views.timeline, window)
    if answer["revision"] == seen:
        answer = {"revision": seen}
    return _packed(request, answer | {"now": CLOCK.now()})


def _packed(request: Request, answer: Json) -> Response:
    """JSON, compressed for who takes it: 2,000 jobs are some hundreds of kilobytes."""
    content, headers = orjson.dumps(answer), {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = gzip.compress(content, 4), headers | {"Content-Encoding": "gzip"}
    return Response(content, media_type="application/json", headers=headers)
