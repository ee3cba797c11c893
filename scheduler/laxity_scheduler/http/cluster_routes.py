"""The HTTP calls about the whole: the cluster, decisions, metrics, health, and the API's reference.

The names of these functions are the operation ids of the OpenAPI document.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from laxity.safe_text import without_secrets
from laxity_scheduler.http.answers import Cluster, DecisionList, answering
from laxity_scheduler.http.api_reference import HEADERS, reference_page
from laxity_scheduler.http.dependencies import (
    Jobs,
    TheCaller,
    TheService,
    require_full_access,
    visible_decision,
    visible_failure,
)
from laxity_scheduler.http.responses import ERRORS, JOB_ERRORS, JsonResponse, Problem
from laxity_scheduler.http.tokens import Caller
from laxity_scheduler.service.exported.metrics import CONTENT_TYPE
from laxity_scheduler.service_clock import CLOCK
from laxity_scheduler.store.store import StoreError

router = APIRouter(responses=ERRORS)


@router.post("/v1/release")
async def release(job_service: Jobs, caller: TheCaller) -> Response:
    """Let every Job go: laxity's label and annotations are dropped, and it touches none again.

    Those that wait are started by nobody: they stay suspended, and are listed. `refused` names those
    that could not be released, and why: they are managed as before. `nodes_refused` names the lent
    nodes that could not be given back, and why: they stay labelled as lent.
    """
    require_full_access(caller)
    released = await run_in_threadpool(job_service.release_all)
    answer = {"released": released.jobs, "suspended": released.suspended}
    refused = {
        "refused": dict(released.refused),
        "nodes_refused": dict(released.nodes_refused),
    }
    return JsonResponse(answer | refused)


@router.get("/v1/cluster", responses=answering(Cluster))
async def cluster(job_service: Jobs, caller: TheCaller) -> Response:
    """Nodes, free GPUs, policy, predictor, and how promises came out."""
    view = await run_in_threadpool(job_service.views.cluster_view)
    return JsonResponse(view | {"failure": visible_failure(caller, view["failure"])})


@router.get("/v1/decisions", responses=JOB_ERRORS | answering(DecisionList))
async def decisions(
    job_service: Jobs,
    caller: TheCaller,
    job: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> Response:
    """The latest decisions, of one job or of all that the caller may see."""
    if job is not None and not caller.may(job.partition("/")[0]):
        raise Problem(404, "not_found", f"there is no job {job}")
    namespaces = None if caller.namespaces is None else sorted(caller.namespaces)
    rows = await run_in_threadpool(job_service.views.latest_decisions, job, namespaces, limit)
    return JsonResponse({"decisions": [visible_decision(caller, row) for row in rows]})


@router.get("/metrics")
async def metrics(service: TheService, caller: TheCaller) -> Response:
    """For Prometheus. A token of some namespaces reads the figures of these and of the whole."""
    text = await run_in_threadpool(service.metrics.exposition, caller.namespaces)
    return Response(text, media_type=CONTENT_TYPE)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The reference of this API."""
    return HTMLResponse(reference_page(request.app.openapi()), headers=HEADERS)


@router.get("/healthz")
async def healthz() -> Response:
    """The process answers."""
    return JsonResponse({"ok": True})


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
        problems["world"] = visible_failure(caller, service.failure) or "not seen yet"
    if service.failure_streak.alarm:
        problems["cycles"] = visible_failure(caller, service.failure_streak.alarm)
    who = {"leads": service.leading, "leader": service.leader()}
    status_code = 503 if problems else 200
    waits = {"blind": without_secrets(service.stale_reason)} if service.stale_reason else {}
    waits |= {"clock": CLOCK.warning} if CLOCK.warning else {}
    return JsonResponse(
        {"ready": not problems, **who, **waits, **problems}, status_code=status_code
    )
