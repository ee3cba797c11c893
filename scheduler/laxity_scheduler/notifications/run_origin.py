"""Where a training comes from, as its MLflow run shows it: code, owner, parameters, experiment.

All of it comes from the Job, which its owner wrote: values are read as text, or skipped.
"""

import getpass
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from laxity import json_tree, names
from laxity.worker.mlflow_tracking import EXPERIMENT
from laxity_scheduler.service.views.view_fields import Json

MAX_VALUE_LENGTH: Final = 6_000  # MLflow takes no longer ones
MAX_NAME_LENGTH: Final = 250
LOCAL_IMAGE: Final = "laxity-worker:latest"
ENV_EXPERIMENT: Final = "MLFLOW_EXPERIMENT_NAME"
FLOW_RUN_URL: Final = re.compile(
    r"https?://[^\s()<>]{1,500}"
)  # in Markdown it stays a link and no more


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """What is written on a run once. `parameters` are those of the function, as text."""

    experiment: str = EXPERIMENT
    tags: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)


def origin_of(manifest: Mapping[str, Any], view: Json) -> RunOrigin:
    """The origin as the Job states it. Its user is the namespace, or locally the service's user."""
    annotations = json_tree.annotations_of(manifest)
    spec = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = spec.get("containers") or [{}]
    rows = [row for row in containers[0].get("env") or [] if isinstance(row, dict)]
    env = {row.get("name"): row.get("value") for row in rows}
    image = str(containers[0].get("image") or LOCAL_IMAGE)
    entry = str(annotations.get(names.ENTRY) or (image if image != LOCAL_IMAGE else ""))
    tags = {
        "mlflow.source.name": entry,
        "mlflow.source.type": "JOB",
        "mlflow.user": _owner_name(view["id"].partition("/")[0], is_local=image == LOCAL_IMAGE),
    }
    default = os.environ.get(ENV_EXPERIMENT, EXPERIMENT)
    return RunOrigin(
        experiment=str(env.get(ENV_EXPERIMENT) or default)[:MAX_NAME_LENGTH],
        tags={name: value for name, value in tags.items() if value},
        parameters=dict(_iter_parameters(annotations.get(names.PARAMETERS))),
    )


def flow_run_url(view: Mapping[str, Any]) -> str:
    """The page of the Prefect flow run that follows this job; "" if nobody says one."""
    url = str(view["followed_by"])
    return url if FLOW_RUN_URL.fullmatch(url) else ""


def _owner_name(namespace: str, *, is_local: bool) -> str:
    try:
        return getpass.getuser() if is_local else namespace
    except (KeyError, OSError):  # this user has no name
        return namespace


def _iter_parameters(text: object) -> Iterator[tuple[str, str]]:
    try:
        parameters = json.loads(str(text or "{}"))
    except ValueError:
        return
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        if name.isidentifier() and len(name) <= MAX_NAME_LENGTH:  # MLflow takes no others
            shown = value if isinstance(value, str) else json.dumps(value)
            yield name, shown[:MAX_VALUE_LENGTH]
