"""What a caller may see and do: its own namespaces; jobs of others are counted, not named."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from laxity_scheduler.http.responses import Problem
from laxity_scheduler.http.tokens import Caller
from laxity_scheduler.model.reasons import visible_names
from laxity_scheduler.service.view_fields import Json

CYCLES_FAIL: Final = "cycles fail; a token for all namespaces shows why"


def check_namespace(manifest: Mapping[str, Any], caller: Caller) -> None:
    """403 unless the caller may submit to the manifest's namespace."""
    metadata = manifest.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
    if not caller.may(str(namespace or "default")):
        raise Problem(
            403, "forbidden", f"this token does not open namespace {namespace or 'default'}"
        )


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
    return problem if is_operator or not problem else CYCLES_FAIL


def may_see(caller: Caller, job_id: str) -> bool:
    """Whether the caller's token opens the namespace of this job."""
    return caller.may(job_id.partition("/")[0])


def require_full_access(caller: Caller) -> None:
    """403 unless the caller's token opens every namespace."""
    if caller.namespaces is not None:
        raise Problem(403, "forbidden", "this needs a token that opens every namespace")
