"""Job variables that say a deadline: only a work pool made by `laxity workpool` puts them into a Job."""

import os
from contextlib import suppress
from typing import Any, Final, cast
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_DEFAULT_WORK_POOL_NAME

from laxity import names
from laxity.job.qos import QoSError

VARIABLE: Final = "deadline"
NO_EFFECT: Final = (
    "the job variable deadline has an effect only in a work pool of `laxity workpool`: take it out, "
    "and {instead}"
)
OF_FLOW: Final = "give the run --param deadline=1h, or the deployment the parameter deadline"
OF_WORKFLOW: Final = "declare it in deadline_workflow"


def check_run(run: FlowRun, declared: str | None, instead: str = OF_FLOW) -> None:
    """QoSError where this run, or its deployment, has a deadline that no Job of its pool carries.

    `deploy` writes the declared one into each deployment: that one is no other deadline.
    """
    if os.environ.get(names.ENV_POOL):
        return
    variables = dict(run.job_variables or {})
    if VARIABLE not in variables and run.deployment_id:
        variables = _of_deployment(run)
        if variables.get(VARIABLE) == declared:
            return
    if variables.get(VARIABLE):
        raise QoSError(VARIABLE, NO_EFFECT.format(instead=instead))


def _of_deployment(run: FlowRun) -> dict[str, Any]:
    """Empty where it was deleted since the run began."""
    with suppress(ObjectNotFound), get_client(sync_client=True) as api:
        return api.read_deployment(cast("UUID", run.deployment_id)).job_variables
    return {}


def takes_deadline(pool: str | None) -> bool:
    """Whether this work pool, or the default one, has the variable; True where there is no such pool."""
    name = pool or PREFECT_DEFAULT_WORK_POOL_NAME.value()
    if not name:
        return True
    with suppress(ObjectNotFound), get_client(sync_client=True) as api:
        template = api.read_work_pool(name).base_job_template
        return VARIABLE in template.get("variables", {}).get("properties", {})
    return True
