"""Job variables that say what a flow declares: only a work pool made by `laxity workpool` has them."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_DEFAULT_WORK_POOL_NAME

from laxity import names
from laxity.flow.declaration import OPTIONS, Declaration
from laxity.job.qos import QoSError

DEADLINE: Final = "deadline"
WIDTHS: Final = "widths"  # the option workers, as a work pool calls it
OF_PREFECT: Final = ("image", "env", "namespace")  # job variables with a meaning of their own
OURS: Final = frozenset({*OPTIONS, WIDTHS}.difference(OF_PREFECT))
FLOW: Final = "deadline_flow"
WORKFLOW: Final = "deadline_workflow"
OF_WORKFLOW: Final = (DEADLINE, "service_class", "idempotency_key")


def check_run(run: FlowRun, declared: Mapping[str, str], decorator: str = FLOW) -> None:
    """QoSError where this run, or its deployment, has a job variable of ours that its pool lacks.

    Those of a deployment that say what is declared are passed over.
    """
    if os.environ.get(names.ENV_POOL):
        return
    given = OURS.intersection(run.job_variables or {})
    if run.deployment_id:
        others = _of_deployment(run)
        given |= {name for name in OURS.intersection(others) if others[name] != declared.get(name)}
    if given:
        _check_names(given, _names_in_pool(run.work_pool_name), decorator)


def with_declared(
    declared: Declaration, given: Mapping[str, Any], pool: str | None
) -> dict[str, Any]:
    """The job variables of a deployment: what is declared, under those that are given.

    QoSError for one of ours that its pool lacks.
    """
    known = _names_in_pool(pool or PREFECT_DEFAULT_WORK_POOL_NAME.value())
    _check_names(OURS.intersection(given), known, FLOW)
    if DEADLINE not in known:
        return dict(given)
    if given.get("service_class") == "best_effort":
        declared = declared.with_changes(service_class="best_effort")
    return {**declared.job_variables(), **given}


def _check_names(given: frozenset[str], known: frozenset[str], decorator: str) -> None:
    for name in sorted(given - known):
        there = decorator if name in OF_WORKFLOW else FLOW
        instead = f"declare {'workers' if name == WIDTHS else name} in {there}"
        if (name, decorator) == (DEADLINE, FLOW):
            instead = "give the run --param deadline=1h, or the deployment the parameter deadline"
        raise QoSError(name, f"there is no job variable {name} here: take it out, and {instead}")


def _of_deployment(run: FlowRun) -> dict[str, Any]:
    """Empty where it was deleted since the run began."""
    with suppress(ObjectNotFound), get_client(sync_client=True) as api:
        return api.read_deployment(cast("UUID", run.deployment_id)).job_variables
    return {}


def _names_in_pool(pool: str | None) -> frozenset[str]:
    """The variables of this work pool's template; none where there is no such pool."""
    if not pool:
        return frozenset()
    with suppress(ObjectNotFound), get_client(sync_client=True) as api:
        template = api.read_work_pool(pool).base_job_template
        return frozenset(template.get("variables", {}).get("properties", {}))
    return frozenset()
