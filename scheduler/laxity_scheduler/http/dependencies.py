"""What a route asks for of its request: the service, the caller, and the job that the path names."""

import re
from typing import Annotated, Any, Final

from fastapi import Body, Depends, Request

from laxity_scheduler.http.job_service import JobService
from laxity_scheduler.http.responses import Problem
from laxity_scheduler.http.tokens import Caller
from laxity_scheduler.service.loop import Service

NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")

Manifest = Annotated[dict[str, Any], Body(description="A batch/v1 Job.")]


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def job_service_of(request: Request) -> JobService:
    job_service: JobService = request.app.state.job_service
    return job_service


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
    return _parse_job_id(namespace, name)


def working_job_of(namespace: str, name: str, request: Request) -> str:
    """The job that the path names, if the caller is a worker or may see it."""
    caller: Caller = request.state.caller
    if not caller.is_worker and not caller.may(namespace):
        raise Problem(404, "not_found", f"there is no job {namespace}/{name}")
    return _parse_job_id(namespace, name)


def foreign_worker_problem() -> Problem:
    return Problem(403, "forbidden", "this token is for the workers of another Job")


def _parse_job_id(namespace: str, name: str) -> str:
    for part in (namespace, name):
        if not NAME.fullmatch(part):
            raise Problem(404, "not_found", f"{part[:80]!r} is no name that a Job can have")
    return f"{namespace}/{name}"


TheService = Annotated[Service, Depends(service_of)]
Jobs = Annotated[JobService, Depends(job_service_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
