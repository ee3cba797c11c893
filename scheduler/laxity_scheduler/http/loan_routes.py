"""The HTTP call of inference schedulers that know better than a forecast what their fleet needs.

The name of the function is the operation id of the OpenAPI document.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Response
from starlette.concurrency import run_in_threadpool

from laxity_scheduler.http.dependencies import TheCaller, TheService
from laxity_scheduler.http.responses import ERRORS, LOAN_ERRORS, JsonResponse, Problem
from laxity_scheduler.http.tokens import Caller
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.service.loan_orders import LoanOrderError
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service_clock import CLOCK

LOANS: Final = "@loans"  # in the file of tokens, in place of a namespace: opens this call
Order = Annotated[dict[str, Any], Body(description="`loan` GPUS, or `reclaim` GPUS and `by` when.")]

router = APIRouter(responses=ERRORS)


@router.post("/v1/loans", responses=LOAN_ERRORS)
async def loans(order: Order, service: TheService, caller: TheCaller) -> Response:
    """Lend so many GPUs of the inference fleet more, or take so many back by an instant.

    This takes the place of the forecast until it is withdrawn, also after a restart. GPUs that
    inference pods hold or wait for stay theirs. The answer says how many GPUs may be lent now.
    """
    state = _open_fleet(service, caller)
    try:
        answer = await run_in_threadpool(service.loan_orders.add_order, order, state, CLOCK.now())
    except LoanOrderError as error:
        raise Problem(422, "invalid", str(error), error.field) from error
    service.world.wake()
    return JsonResponse(answer)


@router.delete("/v1/loans", responses=LOAN_ERRORS)
async def withdraw_loans(service: TheService, caller: TheCaller) -> Response:
    """Withdraw what was said about loans: the forecast counts again."""
    state = _open_fleet(service, caller)
    answer = await run_in_threadpool(service.loan_orders.withdraw, state)
    service.world.wake()
    return JsonResponse(answer)


def _open_fleet(service: Service, caller: Caller) -> ClusterState:
    """The snapshot with the fleet that this caller may give orders about."""
    if not caller.may(LOANS):
        message = f"this needs a token for {LOANS}, or one that opens every namespace"
        raise Problem(403, "forbidden", message)
    if not service.leading:
        who = service.leader() or "no replica"
        raise Problem(503, "not_leading", f"this replica does not act now; {who} does")
    state, _ = service.last_snapshot
    if state.inference is None:
        raise Problem(
            409, "no_fleet", "no node that is ready is labelled laxity.dev/pool=inference"
        )
    return state
