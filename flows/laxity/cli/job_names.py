"""Names of jobs on the command line: a beginning that only one job has is enough, and Tab completes it."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from laxity.api.client import Client

T = TypeVar("T")
COMPLETE_WITHIN_S: Final = 1.0
NO_SUCH_JOB: Final = 404


def with_job(client: "Client", job: str, act: Callable[[str], T]) -> T:
    """What `act` returns for this job, or for the only one whose name begins so.

    ServiceError as `act` raises it, if there is no such job or there are several.
    """
    from laxity.api.client import ServiceError

    try:
        return act(job)
    except ServiceError as error:
        if error.status != NO_SUCH_JOB:
            raise
        alike = beginning_with(client, job)
        if len(alike) != 1:
            raise
    return act(alike[0])


def with_job_or_group(
    client: "Client", name: str, act: Callable[[str], T], act_on_group: Callable[[str], T]
) -> T:
    """What `act` returns for the job of this name; for the group, where there is no such job.

    For either, a beginning that only one has is enough.
    """
    from laxity.api.client import ServiceError, full_id

    start = full_id(name)
    try:
        return with_job(client, name, act)
    except ServiceError as error:
        if error.status != NO_SUCH_JOB:
            raise
        try:
            return act_on_group(name)
        except ServiceError as no_group:
            if no_group.status != NO_SUCH_JOB:
                raise no_group from None
        alike = [group for group in _groups_of(client) if group.startswith(start)]
        if len(alike) != 1:
            raise
    return act_on_group(alike[0])


def beginning_with(client: "Client", start: str) -> list[str]:
    """Ids of the jobs whose name begins so, in the namespace that is named or the default one."""
    from laxity.api.client import ServiceError, full_id

    wanted = full_id(start)
    try:
        jobs = client.jobs(wanted.partition("/")[0])
    except ServiceError:
        return []
    return [job.id for job in jobs if job.id.startswith(wanted)]


def _groups_of(client: "Client") -> list[str]:
    """Ids of the groups; none of a service that does not list them."""
    from laxity.api.client import ServiceError

    try:
        return [str(group["id"]) for group in client.groups()]
    except ServiceError:
        return []


def completing(values: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What Typer asks when Tab is pressed after an option of these values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values() if value.startswith(incomplete)]

    return complete


def complete_job(incomplete: str) -> list[str]:
    """Names for the shell to offer; none if no service answers in time."""
    from laxity.api.client import Client, ServiceError
    from laxity.cli.render.job_table import short_id

    try:
        jobs = Client(patience_s=0, timeout_s=COMPLETE_WITHIN_S).jobs()
    except (ServiceError, ValueError):
        return []
    return [name for job in jobs for name in (short_id(job.id),) if name.startswith(incomplete)]
