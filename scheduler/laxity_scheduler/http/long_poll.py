"""Answers that wait: for a change of a job, or for its next verdict. No thread is held meanwhile."""

import asyncio
from typing import Final

from starlette.concurrency import run_in_threadpool

from laxity_scheduler.http.gate import stopping_problem
from laxity_scheduler.http.job_service import JobService
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.notifier import wait_for_event
from laxity_scheduler.service.views.view_fields import Json

MAX_POLL_S: Final = 25.0
VERDICT_WAIT_S: Final = 5.0


async def wait_for_change(service: Service, changed: asyncio.Event, end_at: float) -> None:
    """Wait for a ring, until `end_at` of the loop's clock. Problem if the service stops."""
    if not service.notifier.closed:
        await wait_for_event(changed, end_at - loop_time())
    if service.notifier.closed:
        raise stopping_problem()


async def wait_for_verdict(job_id: str, jobs: JobService, service: Service, *, since: int) -> Json:
    """The job's view once a verdict on its new terms is there, or after a few seconds as it is.

    `since`: how many cycles were completed before the terms were changed.
    """
    end_at = loop_time() + VERDICT_WAIT_S
    with service.notifier.subscribe("cycle") as changed:
        while not _is_judged(job_id, service, since) and loop_time() < end_at:
            await wait_for_change(service, changed, end_at)
    view: Json = await run_in_threadpool(jobs.views.view_of, job_id)
    return view


def _is_judged(job_id: str, service: Service, since: int) -> bool:
    """Whether a cycle that began after the change has judged it; one may have been under way."""
    state = service.state
    row = state.by_id.get(job_id) if state is not None else None
    return service.completed > since + 1 and (row is None or not row.asked)


def loop_time() -> float:
    """Seconds of the event loop's clock."""
    return asyncio.get_running_loop().time()
