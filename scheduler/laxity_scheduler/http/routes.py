"""The HTTP face: JSON in, JSON out, and an error that says what is wrong and where.

Nothing here decides. Calls that may take long run in threads; long polls hold a coroutine and no
thread. What does not concern a caller's namespaces is not there for him.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from laxity.job.qos import QoSError
from laxity_scheduler.http.api_reference import HEADERS, page
from laxity_scheduler.http.error_schemas import ERRORS, JOB_ERRORS
from laxity_scheduler.http.gate import stopping
from laxity_scheduler.http.job_service import ConflictError, Desk
from laxity_scheduler.http.request_body import plain, readable
from laxity_scheduler.http.responses import Answer, Problem
from laxity_scheduler.http.tokens import Caller
from laxity_scheduler.live import UnknownJobError
from laxity_scheduler.model.reasons import named
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.metrics import CONTENT_TYPE
from laxity_scheduler.service.notifier import heard_in
from laxity_scheduler.service.views import Json
from laxity_scheduler.store.store import StoreError

LOG: Final = logging.getLogger(__name__)
LONGEST_POLL_S: Final = 25.0
VERDICT_WAIT_S: Final = 5.0
MOST_LINES: Final = 10_000
CYCLES_FAIL: Final = "cycles fail; a token for all namespaces shows why"
NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")

router = APIRouter(responses=ERRORS)
Manifest = Annotated[dict[str, Any], Body(description="A batch/v1 Job.")]


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def desk_of(request: Request) -> Desk:
    found: Desk = request.app.state.desk
    return found


def caller_of(request: Request) -> Caller:
    """Who calls; 403 for a worker."""
    caller: Caller = request.state.caller
    if caller.is_worker:
        raise Problem(403, "forbidden", "a worker's token opens the signal call only")
    return caller


def job_of(namespace: str, name: str, request: Request) -> str:
    """The job that the path names, if the caller may see it."""
    if not caller_of(request).may(namespace):
        raise Problem(404, "not_found", f"there is no job {namespace}/{name}")
    return _named(namespace, name)


def working_job_of(namespace: str, name: str, request: Request) -> str:
    """The job that the path names, if the caller is a worker or may see it."""
    caller: Caller = request.state.caller
    if not caller.is_worker and not caller.may(namespace):
        raise Problem(404, "not_found", f"there is no job {namespace}/{name}")
    return _named(namespace, name)


def _others_job() -> Problem:
    return Problem(403, "forbidden", "this token is for the workers of another Job")


def _named(namespace: str, name: str) -> str:
    for part in (namespace, name):
        if not NAME.fullmatch(part):
            raise Problem(404, "not_found", f"{part[:80]!r} is no name that a Job can have")
    return f"{namespace}/{name}"


TheService = Annotated[Service, Depends(service_of)]
TheDesk = Annotated[Desk, Depends(desk_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]


@router.post("/v1/jobs", status_code=201, responses=JOB_ERRORS)
async def submit(manifest: Manifest, desk: TheDesk, caller: TheCaller) -> Response:
    """Submit a Job; 200 instead of 201 if its idempotency key attached to an earlier one."""
    plain(manifest)
    _allowed(manifest, caller)
    with readable("manifest"):
        view, is_new = await run_in_threadpool(desk.submit, manifest)
    return Answer(_for(caller, view), status_code=201 if is_new else 200)


@router.get("/v1/jobs")
async def jobs(desk: TheDesk, caller: TheCaller, namespace: str | None = None) -> Response:
    """All jobs, ended ones too, in order of submission."""

    def sees(of: str) -> bool:
        return caller.may(of) and namespace in (None, of)

    views = await run_in_threadpool(desk.views, sees)
    return Answer({"jobs": [_for(caller, view) for view in views]})


@router.get("/v1/jobs/{namespace}/{name}", responses=JOB_ERRORS)
async def job(
    *,
    job_id: Annotated[str, Depends(job_of)],
    desk: TheDesk,
    service: TheService,
    caller: TheCaller,
    wait_s: Annotated[float, Query(ge=0, le=3600)] = 0.0,
    seen: str | None = None,
) -> Response:
    """One job; with `wait_s` and `seen`, as soon as its revision is another one."""
    view: Json = await run_in_threadpool(desk.details, job_id)
    end_at = _now() + min(wait_s, LONGEST_POLL_S)
    with service.bells.listening(f"job:{job_id}") as bell:
        while seen is not None and str(view["revision"]) == seen and _now() < end_at:
            await _heard(service, bell, end_at)
            view = await run_in_threadpool(desk.details, job_id)
    return Answer(_for(caller, view))


@router.delete("/v1/jobs/{namespace}/{name}", responses=JOB_ERRORS)
async def cancel(
    job_id: Annotated[str, Depends(job_of)], desk: TheDesk, caller: TheCaller
) -> Response:
    """Cancel a job; one that has ended stays as it is."""
    return Answer(_for(caller, await run_in_threadpool(desk.cancel, job_id)))


@router.post("/v1/jobs/{namespace}/{name}/amend", responses=JOB_ERRORS)
async def amend(
    job_id: Annotated[str, Depends(job_of)],
    desk: TheDesk,
    service: TheService,
    caller: TheCaller,
    deadline: Annotated[str, Body(embed=True, max_length=64)],
) -> Response:
    """Ask for another deadline; the answer holds the new verdict, if it came in a few seconds."""
    try:
        refused = await run_in_threadpool(desk.amend, job_id, deadline)
    except QoSError:
        raise
    except ValueError as error:
        raise Problem(422, "invalid", str(error), "deadline") from error
    if refused is not None:
        return Answer(_for(caller, refused))
    return Answer(_for(caller, await _judged(job_id, desk, service)))


@router.post("/v1/jobs/{namespace}/{name}/accept", responses=JOB_ERRORS)
async def accept(
    job_id: Annotated[str, Depends(job_of)],
    desk: TheDesk,
    service: TheService,
    caller: TheCaller,
    offer: Annotated[int, Body(embed=True, ge=1, le=1000)] = 1,
) -> Response:
    """Take counter-offer N of a refused job."""
    await run_in_threadpool(desk.accept, job_id, offer)
    return Answer(_for(caller, await _judged(job_id, desk, service)))


@router.post("/v1/jobs/{namespace}/{name}/signal", responses=JOB_ERRORS)
async def signal(
    *,
    job_id: Annotated[str, Depends(working_job_of)],
    desk: TheDesk,
    service: TheService,
    request: Request,
    uid: Annotated[str, Body(min_length=1, max_length=128, description="Of the Job.")],
    worker: Annotated[int, Body(ge=0)] = 0,
    generation: Annotated[int, Body()] = 0,
    reports: Annotated[list[Any] | None, Body(max_length=MOST_LINES)] = None,
    wait_s: Annotated[float, Body(ge=0, le=3600)] = 0.0,
) -> Response:
    """A worker's call: hand in reports, and learn what to do, at the latest after `wait_s`."""
    caller: Caller = request.state.caller
    if caller.is_worker and caller.uid != uid:
        raise _others_job()
    lines = reports or []
    end_at = _now() + (0.0 if lines else min(wait_s, LONGEST_POLL_S))
    with service.bells.listening(f"signal:{job_id}") as bell:
        try:
            with readable("reports"):
                acked = await run_in_threadpool(desk.ingest, job_id, uid, lines)
        except (ConflictError, UnknownJobError):
            if caller.is_worker:
                raise _others_job() from None
            raise
        said = await run_in_threadpool(desk.signal, job_id)
        while said.generation == generation and _now() < end_at:
            await _heard(service, bell, end_at)
            said = await run_in_threadpool(desk.signal, job_id)
    answer = said.to_json() | {"workers": said.workers or None, "acked": acked}
    return Answer(answer)


@router.get("/v1/jobs/{namespace}/{name}/explain", responses=JOB_ERRORS)
async def explain(
    job_id: Annotated[str, Depends(job_of)], desk: TheDesk, caller: TheCaller
) -> Response:
    """Why the job is where it is."""
    answer = await run_in_threadpool(desk.explain, job_id)
    chain = [_decided_for(caller, row) for row in answer["chain"]]
    return Answer(_for(caller, answer) | {"job": _for(caller, answer["job"]), "chain": chain})


@router.get("/v1/jobs/{namespace}/{name}/logs", responses=JOB_ERRORS)
async def logs(
    job_id: Annotated[str, Depends(job_of)],
    desk: TheDesk,
    index: Annotated[int, Query(ge=0, le=100_000)] = 0,
    tail: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """What a worker has written."""
    return Answer({"text": await run_in_threadpool(desk.logs, job_id, index, tail)})


@router.post("/v1/whatif")
async def whatif(manifest: Manifest, desk: TheDesk, caller: TheCaller) -> Response:
    """The verdict that a Job would get now, and what it would do to others."""
    plain(manifest)
    _allowed(manifest, caller)
    with readable("manifest"):
        answer = await run_in_threadpool(desk.whatif, manifest)
    answer["effects"] = [
        effect for effect in answer["effects"] if caller.may(effect["job"].partition("/")[0])
    ]
    return Answer(_for(caller, answer))


@router.post("/v1/jobs/{namespace}/{name}/release", responses=JOB_ERRORS)
async def release_one(
    job_id: Annotated[str, Depends(job_of)], desk: TheDesk, caller: TheCaller
) -> Response:
    """Pin one running Job: it is counted, and never resized or stopped until it is taken back.

    Others were promised what it may be stopped for, so this is not for a namespace's token.
    """
    _everything(caller)
    await run_in_threadpool(desk.pin, job_id)
    return Answer({"released": job_id})


@router.delete("/v1/jobs/{namespace}/{name}/release", responses=JOB_ERRORS)
async def take_back(job_id: Annotated[str, Depends(job_of)], desk: TheDesk) -> Response:
    """Remove the pin of a Job, whoever set it: laxity decides about it again."""
    await run_in_threadpool(desk.unpin, job_id)
    return Answer({"taken_back": job_id})


@router.post("/v1/release")
async def release(desk: TheDesk, caller: TheCaller) -> Response:
    """Let every Job go: laxity's label and annotations are dropped, and it touches none again.

    Those that wait are started by nobody: they stay suspended, and are listed.
    """
    _everything(caller)
    released = await run_in_threadpool(desk.release)
    return Answer({"released": released.jobs, "suspended": released.suspended})


@router.get("/v1/cluster")
async def cluster(desk: TheDesk, caller: TheCaller) -> Response:
    """Nodes, free GPUs, policy, predictor, and how promises came out."""
    found = await run_in_threadpool(desk.cluster)
    return Answer(found | {"failure": _failure_for(caller, found["failure"])})


@router.get("/v1/decisions", responses=JOB_ERRORS)
async def decisions(
    desk: TheDesk,
    caller: TheCaller,
    job: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> Response:
    """The latest decisions, of one job or of all that the caller may see."""
    if job is not None and not caller.may(job.partition("/")[0]):
        raise Problem(404, "not_found", f"there is no job {job}")
    namespaces = None if caller.namespaces is None else sorted(caller.namespaces)
    rows = await run_in_threadpool(desk.decisions, job, namespaces, limit)
    return Answer({"decisions": [_decided_for(caller, row) for row in rows]})


@router.get("/metrics")
async def metrics(service: TheService, caller: TheCaller) -> Response:
    """For Prometheus. A token of some namespaces reads the figures of these and of the whole."""
    text = await run_in_threadpool(service.metrics.text, caller.namespaces)
    return Response(text, media_type=CONTENT_TYPE)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The reference of this API."""
    return HTMLResponse(page(request.app.openapi()), headers=HEADERS)


@router.get("/healthz")
async def healthz() -> Response:
    """The process answers."""
    return Answer({"ok": True})


@router.get("/readyz")
async def readyz(request: Request, service: TheService) -> Response:
    """The store answers, the cluster has been seen and cycles go well; which replica acts.

    A cluster that cannot be followed for a while makes no replica unready: workers report to it.
    The errors themselves name hosts, and those of cycles Jobs: they are told with a token only, the
    latter with one that opens every namespace.
    """
    caller: Caller | None = request.state.caller
    is_known = caller is not None and not caller.is_worker
    problems = {}
    try:
        await run_in_threadpool(service.store.check_connection)
    except StoreError as error:
        problems["store"] = str(error) if is_known else "does not answer"
    if service.state is None:
        problems["world"] = _failure_for(caller, service.failure) or "not seen yet"
    if service.failing.words:
        problems["cycles"] = _failure_for(caller, service.failing.words)
    who = {"leads": service.leading, "leader": service.leader()}
    status_code = 503 if problems else 200
    waits = {"blind": service.blind} if service.blind else {}
    return Answer({"ready": not problems, **who, **waits, **problems}, status_code=status_code)


async def _heard(service: Service, bell: asyncio.Event, end_at: float) -> None:
    """Wait for a ring, until `end_at` of the loop's clock. Problem if the service stops."""
    if not service.bells.closed:
        await heard_in(bell, end_at - _now())
    if service.bells.closed:
        raise stopping()


async def _judged(job_id: str, desk: Desk, service: Service) -> Json:
    """The job's view once a verdict on its new terms is there, or after a few seconds as it is."""
    end_at, began = _now() + VERDICT_WAIT_S, service.completed
    with service.bells.listening("cycle") as bell:
        while _now() < end_at:
            await _heard(service, bell, end_at)
            state = service.state
            row = state.by_id.get(job_id) if state is not None else None
            if service.completed > began + 1 and (row is None or not row.asked):
                break
    view: Json = await run_in_threadpool(desk.view, job_id)
    return view


def _allowed(manifest: Mapping[str, Any], caller: Caller) -> None:
    metadata = manifest.get("metadata")
    named = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    if not caller.may(str(named or "default")):
        raise Problem(403, "forbidden", f"this token does not open namespace {named or 'default'}")


def _for(caller: Caller, view: Json) -> Json:
    """The view as this caller may see it: jobs of namespaces that it does not open are counted."""
    if caller.namespaces is None:
        return view
    return view | {"held_by": named(view["held_by"], partial(_may_see, caller))}


def _decided_for(caller: Caller, row: Json) -> Json:
    """A decision without the name of a foreign job for whom it was taken."""
    whom = row["decision"].get("beneficiary")
    if not whom or _may_see(caller, whom):
        return row
    return row | {"decision": row["decision"] | {"beneficiary": named([whom], lambda _: False)[0]}}


def _failure_for(caller: Caller | None, problem: str) -> str:
    """What makes cycles fail, which may name anybody's Job, as this caller may read it."""
    is_operator = caller is not None and caller.namespaces is None
    return problem if is_operator or not problem else CYCLES_FAIL


def _may_see(caller: Caller, job_id: str) -> bool:
    return caller.may(job_id.partition("/")[0])


def _everything(caller: Caller) -> None:
    if caller.namespaces is not None:
        raise Problem(403, "forbidden", "this needs a token that opens every namespace")


def _now() -> float:
    return asyncio.get_running_loop().time()
