"""The HTTP calls about groups: several jobs with one deadline."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Request, Response
from starlette.concurrency import run_in_threadpool

from laxity.job.qos import QoSError
from laxity_scheduler.http.answers import GroupAnswer, GroupList, answering
from laxity_scheduler.http.charts.story import story_of_group
from laxity_scheduler.http.dependencies import TheCaller, check_namespace, job_of
from laxity_scheduler.http.group_service import GroupService
from laxity_scheduler.http.request_body import check_json, reading_body
from laxity_scheduler.http.responses import ERRORS, JOB_ERRORS, JsonResponse, Problem

router = APIRouter(responses=ERRORS)


def groups_of(request: Request) -> GroupService:
    group_service: GroupService = request.app.state.group_service
    return group_service


Groups = Annotated[GroupService, Depends(groups_of)]
Document = Annotated[dict[str, Any], Body(description="Name, deadline, class and steps.")]


@router.post("/v1/groups", status_code=201, responses=JOB_ERRORS | answering(GroupAnswer, 200, 201))
async def submit_group(document: Document, groups: Groups, caller: TheCaller) -> Response:
    """Declare a group and get its verdict; 200 instead of 201 if there is one of this name."""
    check_json(document)
    check_namespace({"metadata": document}, caller)
    with reading_body("steps"):
        view, is_new = await run_in_threadpool(groups.register_group, document)
    return JsonResponse(view, status_code=201 if is_new else 200)


@router.post("/v1/groups/whatif", responses=JOB_ERRORS | answering(GroupAnswer))
async def whatif_group(document: Document, groups: Groups, caller: TheCaller) -> Response:
    """The verdict that a group would get now; nothing is declared."""
    check_json(document)
    check_namespace({"metadata": document}, caller)
    with reading_body("steps"):
        return JsonResponse(await run_in_threadpool(groups.answer_whatif, document))


@router.get("/v1/groups", responses=answering(GroupList))
async def list_groups(groups: Groups, caller: TheCaller) -> Response:
    """All groups, ended ones too, in order of submission."""
    return JsonResponse({"groups": await run_in_threadpool(groups.list_groups, caller.may)})


@router.get("/v1/groups/{namespace}/{name}", responses=JOB_ERRORS | answering(GroupAnswer))
async def group(group_id: Annotated[str, Depends(job_of)], groups: Groups) -> Response:
    """One group with its jobs."""
    return JsonResponse(await run_in_threadpool(groups.view_of, group_id))


@router.get("/v1/groups/{namespace}/{name}/story", responses=JOB_ERRORS)
async def group_story(group_id: Annotated[str, Depends(job_of)], groups: Groups) -> Response:
    """One group in the words of `laxity show`, for the page."""
    return JsonResponse(story_of_group(await run_in_threadpool(groups.view_of, group_id)))


@router.post("/v1/groups/{namespace}/{name}/amend", responses=JOB_ERRORS | answering(GroupAnswer))
async def amend_group(
    group_id: Annotated[str, Depends(job_of)],
    groups: Groups,
    deadline: Annotated[str, Body(embed=True, max_length=64)],
) -> Response:
    """Ask for another deadline of the whole."""
    try:
        return JsonResponse(await run_in_threadpool(groups.amend_deadline, group_id, deadline))
    except QoSError:
        raise
    except ValueError as error:
        raise Problem(422, "invalid", str(error), "deadline") from error


@router.post("/v1/groups/{namespace}/{name}/end", responses=JOB_ERRORS | answering(GroupAnswer))
async def end_group(
    group_id: Annotated[str, Depends(job_of)],
    groups: Groups,
    state: Annotated[Literal["finished", "failed", "cancelled"], Body(embed=True)],
) -> Response:
    """Say how the workflow ended. With `cancelled` its jobs are cancelled, too."""
    return JsonResponse(await run_in_threadpool(groups.end_group, group_id, state))
