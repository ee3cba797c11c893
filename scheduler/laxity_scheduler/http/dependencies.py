"""What a route asks for of its request: the service, the job that the path names, the caller.

A caller sees and changes its own namespaces; jobs of others are counted, not named.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Body, Depends, Request

from laxity import json_tree
from laxity.safe_text import without_secrets
from laxity_scheduler.http.job_service import JobService
from laxity_scheduler.http.responses import Problem
from laxity_scheduler.http.tokens import Caller
from laxity_scheduler.model.reasons import visible_names
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.views.view_fields import Json

NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9.]{0,251}[A-Za-z0-9])?")
CYCLES_FAIL: Final = "cycles fail; a token for all namespaces shows why"

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
        raise Problem(403, "forbidden", "a worker's token opens the calls of its own Job only")
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


def check_namespace(manifest: Mapping[str, Any], caller: Caller) -> None:
    """403 unless the caller may submit to the manifest's namespace."""
    namespace = json_tree.get_in(manifest, "metadata", "namespace") or "default"
    if not caller.may(str(namespace)):
        raise Problem(403, "forbidden", f"this token does not open namespace {namespace}")


def visible_view(caller: Caller, view: Json) -> Json:
    """The view as this caller may see it: jobs of namespaces that it does not open are counted."""
    if caller.namespaces is None:
        return view
    return view | {"held_by": visible_names(view["held_by"], partial(may_see, caller))}


def visible_decision(caller: Caller, row: Json) -> Json:
    """A decision without the name of a foreign job for whom it was taken."""
    beneficiary = row["decision"].get("beneficiary")
    if not beneficiary or may_see(caller, beneficiary):
        return row
    hidden = visible_names([beneficiary], lambda _: False)[0]
    return row | {"decision": row["decision"] | {"beneficiary": hidden}}


def visible_failure(caller: Caller | None, problem: str) -> str:
    """What makes cycles fail, which may name anybody's Job, as this caller may read it."""
    is_operator = caller is not None and caller.namespaces is None
    return without_secrets(problem) if is_operator or not problem else CYCLES_FAIL


def may_see(caller: Caller, job_id: str) -> bool:
    """Whether the caller's token opens the namespace of this job."""
    return caller.may(job_id.partition("/")[0])


def require_full_access(caller: Caller) -> None:
    """403 unless the caller's token opens every namespace."""
    if caller.namespaces is not None:
        raise Problem(403, "forbidden", "this needs a token that opens every namespace")
