"""Where a training comes from, as its MLflow run shows it: code, owner, parameters, experiment.

All of it stands in the Job, written by its owner: whatever is there is read as text, or passed over.
"""

import getpass
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from laxity import names
from laxity.worker.mlflow_tracking import EXPERIMENT
from laxity_scheduler.service.views import Json

LONGEST_VALUE: Final = 6_000  # MLflow takes no longer ones
LONGEST_NAME: Final = 250
LOCAL: Final = "laxity-worker:latest"
NAME_OF_EXPERIMENT: Final = "MLFLOW_EXPERIMENT_NAME"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run is told once. `parameters` are the function's, as text."""

    experiment: str = EXPERIMENT
    tags: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)


def origin_of(manifest: Mapping[str, Any], view: Json) -> Origin:
    """From the Job. Its user is the namespace, or whoever runs the service on this machine."""
    said = (manifest.get("metadata") or {}).get("annotations") or {}
    spec = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = spec.get("containers") or [{}]
    rows = [row for row in containers[0].get("env") or [] if isinstance(row, dict)]
    env = {row.get("name"): row.get("value") for row in rows}
    image = str(containers[0].get("image") or LOCAL)
    entry = str(said.get(names.ENTRY) or (image if image != LOCAL else ""))
    tags = {
        "mlflow.source.name": entry,
        "mlflow.source.type": "JOB",
        "mlflow.user": _user(view["id"].partition("/")[0], is_local=image == LOCAL),
    }
    default = os.environ.get(NAME_OF_EXPERIMENT, EXPERIMENT)
    return Origin(
        experiment=str(env.get(NAME_OF_EXPERIMENT) or default)[:LONGEST_NAME],
        tags={name: value for name, value in tags.items() if value},
        parameters=dict(_parameters(said.get(names.PARAMETERS))),
    )


def _user(namespace: str, *, is_local: bool) -> str:
    try:
        return getpass.getuser() if is_local else namespace
    except (KeyError, OSError):  # this user has no name
        return namespace


def _parameters(text: object) -> Iterator[tuple[str, str]]:
    try:
        given = json.loads(str(text or "{}"))
    except ValueError:
        return
    for name, value in given.items() if isinstance(given, dict) else ():
        if name.isidentifier() and len(name) <= LONGEST_NAME:  # MLflow takes no others
            shown = value if isinstance(value, str) else json.dumps(value)
            yield name, shown[:LONGEST_VALUE]
