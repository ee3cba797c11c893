"""The HTTP calls about jobs: JSON in, JSON out, and an error that says what is wrong and where.

Nothing here decides. Calls that may take long run in threads; long polls hold a coroutine and no
thread. A caller cannot tell a job of a namespace that its token does not open from one that does
not exist. The names of these functions are the operation ids of the OpenAPI document.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from laxity.job.qos import QoSError
from laxity.worker.progress.progress_posts import PostError
from laxity_scheduler.http.answers import (
    Explanation,
    Job,
    JobList,
    WhatIfAnswer,
    WorkerLog,
    answering,
)
from laxity_scheduler.http.charts.story import story_of
from laxity_scheduler.http.dependencies import (
    Jobs,
    Manifest,
    TheCaller,
    TheService,
    check_namespace,
    foreign_worker_problem,
    job_of,
    require_full_access,
    visible_decision,
    visible_view,
    working_job_of,
)
from laxity_scheduler.http.long_poll import MAX_POLL_S, loop_time, wait_for_change, wait_for_verdict
from laxity_scheduler.http.request_body import check_json, reading_body
from laxity_scheduler.http.responses import ERRORS, JOB_ERRORS, JsonResponse, Problem
from laxity_scheduler.http.tokens import Caller
from laxity_scheduler.http.worker_calls import ConflictError
from laxity_scheduler.live import UnknownJobError
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.service_clock import CLOCK

MAX_LINES: Final = 10_000

router = APIRouter(responses=ERRORS)


@router.post("/v1/jobs", status_code=201, responses=JOB_ERRORS | answering(Job, 200, 201))
async def submit(manifest: Manifest, job_service: Jobs, caller: TheCaller) -> Response:
    """Submit a Job; 200 instead of 201 if its idempotency key attached to an earlier one."""
    check_json(manifest)
    check_namespace(manifest, caller)
    with reading_body("manifest"):
        view, is_new = await run_in_threadpool(job_service.submit_job, manifest)
    return JsonResponse(visible_view(caller, view), status_code=201 if is_new else 200)


@router.get("/v1/jobs", responses=answering(JobList))
async def jobs(job_service: Jobs, caller: TheCaller, namespace: str | None = None) -> Response:
    """All jobs, ended ones too, in order of submission."""

    def may_see(of: str) -> bool:
        return caller.may(of) and namespace in (None, of)

    views = await run_in_threadpool(job_service.views.list_views, may_see)
    return JsonResponse({"jobs": [visible_view(caller, view) for view in views]})


@router.get("/v1/jobs/{namespace}/{name}", responses=JOB_ERRORS | answering(Job))
async def job(
    *,
    job_id: Annotated[str, Depends(job_of)],
    job_service: Jobs,
    service: TheService,
    caller: TheCaller,
    wait_s: Annotated[float, Query(ge=0, le=3600)] = 0.0,
    seen: str | None = None,
) -> Response:
    """One job; with `wait_s` and `seen`, as soon as its revision is another one."""
    view: Json = await run_in_threadpool(job_service.views.view_with_project, job_id)
    end_at = loop_time() + min(wait_s, MAX_POLL_S)
    with service.notifier.subscribe(f"job:{job_id}") as changed:
        while seen is not None and str(view["revision"]) == seen and loop_time() < end_at:
            await wait_for_change(service, changed, end_at)
            view = await run_in_threadpool(job_service.views.view_with_project, job_id)
    return JsonResponse(visible_view(caller, view))


@router.delete("/v1/jobs/{namespace}/{name}", responses=JOB_ERRORS | answering(Job))
async def cancel(
    job_id: Annotated[str, Depends(job_of)], job_service: Jobs, caller: TheCaller
) -> Response:
    """Cancel a job; one that has ended stays as it is."""
    return JsonResponse(
        visible_view(caller, await run_in_threadpool(job_service.cancel_job, job_id))
    )


@router.post("/v1/jobs/{namespace}/{name}/amend", responses=JOB_ERRORS | answering(Job))
async def amend(
    job_id: Annotated[str, Depends(job_of)],
    job_service: Jobs,
    service: TheService,
    caller: TheCaller,
    deadline: Annotated[str, Body(embed=True, max_length=64)],
) -> Response:
    """Ask for another deadline; the answer holds the new verdict, if it came in a few seconds."""
    since = service.completed
    try:
        refused = await run_in_threadpool(job_service.amend_deadline, job_id, deadline)
    except QoSError:
        raise
    except ValueError as error:
        raise Problem(422, "invalid", str(error), "deadline") from error
    if refused is not None:
        return JsonResponse(visible_view(caller, refused))
    view = await wait_for_verdict(job_id, job_service, service, since=since)
    return JsonResponse(visible_view(caller, view))


@router.post("/v1/jobs/{namespace}/{name}/accept", responses=JOB_ERRORS | answering(Job))
async def accept(
    job_id: Annotated[str, Depends(job_of)],
    job_service: Jobs,
    service: TheService,
    caller: TheCaller,
    offer: Annotated[int, Body(embed=True, ge=1, le=1000)] = 1,
) -> Response:
    """Take counter-offer N of a refused job."""
    since = service.completed
    await run_in_threadpool(job_service.accept_offer, job_id, offer)
    view = await wait_for_verdict(job_id, job_service, service, since=since)
    return JsonResponse(visible_view(caller, view))


@router.post("/v1/jobs/{namespace}/{name}/signal", responses=JOB_ERRORS)
async def signal(
    *,
    job_id: Annotated[str, Depends(working_job_of)],
    job_service: Jobs,
    service: TheService,
    request: Request,
    uid: Annotated[str, Body(min_length=1, max_length=128, description="Of the Job.")],
    worker: Annotated[int, Body(ge=0)] = 0,
    generation: Annotated[int, Body()] = 0,
    reports: Annotated[list[Any] | None, Body(max_length=MAX_LINES)] = None,
    sent_at: Annotated[float | None, Body(description="By the worker's clock.")] = None,
    wait_s: Annotated[float, Body(ge=0, le=3600)] = 0.0,
) -> Response:
    """A worker's call: hand in reports, and learn what to do, at the latest after `wait_s`."""
    caller: Caller = request.state.caller
    if caller.is_worker and caller.uid != uid:
        raise foreign_worker_problem()
    lines = reports or []
    behind_s = None if sent_at is None else CLOCK.now() - sent_at
    end_at = loop_time() + (0.0 if lines else min(wait_s, MAX_POLL_S))
    with service.notifier.subscribe(f"signal:{job_id}") as changed:
        try:
            with reading_body("reports"):
                acked = await run_in_threadpool(
                    job_service.workers.ingest_reports, job_id, uid, lines, behind_s=behind_s
                )
        except (ConflictError, UnknownJobError):
            if caller.is_worker:
                raise foreign_worker_problem() from None
            raise
        job_signal = await run_in_threadpool(job_service.workers.signal_for, job_id)
        while job_signal.generation == generation and loop_time() < end_at:
            await wait_for_change(service, changed, end_at)
            job_signal = await run_in_threadpool(job_service.workers.signal_for, job_id)
    answer = job_signal.to_json() | {"acked": acked}
    return JsonResponse(answer)


@router.post("/v1/progress/{pod}", responses=JOB_ERRORS)
async def progress(pod: str, job_service: Jobs, request: Request) -> Response:
    """What a script in this pod posts of its progress, as KEP-2779 has it, with its Job's token."""
    caller: Caller = request.state.caller
    if not caller.is_worker:
        raise Problem(403, "forbidden", "progress is posted with the token of the Job's own pods")
    try:
        body = await request.body()
        await run_in_threadpool(job_service.workers.take_post, caller.uid, pod, body)
    except PostError as error:
        raise Problem(400, "invalid", str(error)) from error
    except UnknownJobError:
        raise foreign_worker_problem() from None
    return JsonResponse({})


@router.get("/v1/jobs/{namespace}/{name}/explain", responses=JOB_ERRORS | answering(Explanation))
async def explain(
    job_id: Annotated[str, Depends(job_of)], job_service: Jobs, caller: TheCaller
) -> Response:
    """Why the job is where it is."""
    answer = await run_in_threadpool(job_service.views.explain_job, job_id)
    chain = [visible_decision(caller, row) for row in answer["chain"]]
    return JsonResponse(
        visible_view(caller, answer) | {"job": visible_view(caller, answer["job"]), "chain": chain}
    )


@router.get("/v1/jobs/{namespace}/{name}/story", responses=JOB_ERRORS)
async def story(
    job_id: Annotated[str, Depends(job_of)],
    job_service: Jobs,
    service: TheService,
    caller: TheCaller,
) -> Response:
    """What `explain` answers, in words, with the latest epochs and the commands that fit."""
    answer = await run_in_threadpool(job_service.views.explain_job, job_id)
    answer["chain"] = [visible_decision(caller, row) for row in answer["chain"]]
    state, predictor = service.last_snapshot
    return JsonResponse(story_of(answer, state.by_id.get(job_id), predictor, CLOCK.now()))


@router.get("/v1/jobs/{namespace}/{name}/logs", responses=JOB_ERRORS | answering(WorkerLog))
async def logs(
    job_id: Annotated[str, Depends(job_of)],
    job_service: Jobs,
    index: Annotated[int, Query(ge=0, le=100_000)] = 0,
    tail: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """What a worker has written."""
    return JsonResponse(
        {"text": await run_in_threadpool(job_service.views.worker_log, job_id, index, tail)}
    )


@router.post("/v1/whatif", responses=answering(WhatIfAnswer))
async def whatif(manifest: Manifest, job_service: Jobs, caller: TheCaller) -> Response:
    """The verdict that a Job would get now, and what it would do to others."""
    check_json(manifest)
    check_namespace(manifest, caller)
    with reading_body("manifest"):
        answer = await run_in_threadpool(job_service.answer_whatif, manifest)
    answer["effects"] = [
        effect for effect in answer["effects"] if caller.may(effect["job"].partition("/")[0])
    ]
    return JsonResponse(visible_view(caller, answer))


@router.post("/v1/jobs/{namespace}/{name}/release", responses=JOB_ERRORS)
async def release_one(
    job_id: Annotated[str, Depends(job_of)], job_service: Jobs, caller: TheCaller
) -> Response:
    """Pin one running Job: it is counted, and never resized or stopped until it is taken back.

    Others were promised what it may be stopped for, so this is not for a namespace's token.
    """
    require_full_access(caller)
    await run_in_threadpool(job_service.pin_job, job_id)
    return JsonResponse({"released": job_id})


@router.delete("/v1/jobs/{namespace}/{name}/release", responses=JOB_ERRORS)
async def take_back(job_id: Annotated[str, Depends(job_of)], job_service: Jobs) -> Response:
    """Remove the pin of a Job, whoever set it: laxity decides about it again."""
    await run_in_threadpool(job_service.unpin_job, job_id)
    return JsonResponse({"taken_back": job_id})
