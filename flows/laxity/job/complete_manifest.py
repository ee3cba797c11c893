"""A Job written by hand, made complete: what its workers are told about it, by their own pods.

Kubernetes gives a pod its index and nothing else of its Job, and a Job's pods cannot be changed once
it is there. So what goes through the service is completed before it is created; who uses kubectl
alone writes these lines (docs/manifest.md). What laxity says of the Job wins over another name or number in
the container, all else stays. A script, which knows nothing of laxity, is told where to post its
progress, by the names that Kubeflow Trainer has for it.
"""

from collections.abc import Sequence
from typing import Any, Final

from laxity import json_tree, names
from laxity.job import signal
from laxity.job.manifest_reader import is_script
from laxity.job.pod_template import (
    LAST_WORDS,
    ORDERS,
    escape_literal,
    orders_mount,
    orders_volume,
    own_fields,
)

Json = dict[str, Any]
PROGRESS_PATH: Final = "/v1/progress"
WORKER_SECRET: Final = "laxity-worker"  # noqa: S105 - its name; LAXITY_URL is in it
# What the annotations of a Job say of its training, by the variable that its workers have it in.
FROM_ANNOTATIONS: Final = (
    (names.ENV_EPOCHS, names.EPOCHS),
    (names.ENV_MODEL, names.MODEL),
    (names.ENV_PARAMETERS, names.PARAMETERS),
    (names.ENV_LAUNCHER, names.LAUNCHER),
    (names.ENV_RESUMES, names.RESUMES),
)
TOKEN: Final = "token"  # noqa: S105 - a file's name
SCRIPT_ENV: Final = (
    *own_fields([(names.ENV_POD, "metadata.name")]),
    {
        "name": names.ENV_PROGRESS_URL,
        "value": f"$({names.ENV_URL}){PROGRESS_PATH}/$({names.ENV_POD})",
    },
    {"name": names.ENV_PROGRESS_TOKEN, "value": f"{signal.FOLDER}/{TOKEN}"},
)


def complete_manifest(job: Json) -> None:
    """Add to the pods of this Job what a worker needs and nobody has said. Any input is survived."""
    pod = json_tree.mapping_at(job, "spec", "template", "spec")
    container = json_tree.get_in(pod, "containers", 0)
    if not (isinstance(container, dict) and json_tree.mapping_at(job, "metadata")):
        return
    if is_script(json_tree.mapping_at(job, "spec"), json_tree.annotations_of(job)):
        _add_env(container, SCRIPT_ENV)
        _add_volume(container, pod, orders_volume(file=TOKEN, annotation=names.WORKER_TOKEN))
    elif _is_training(job):
        _add_env(container, [*own_fields(), *_literal_variables(job)])
        _add_volume(container, pod, orders_volume())
        container.setdefault("terminationMessagePolicy", LAST_WORDS)


def _is_training(job: Json) -> bool:
    annotations = json_tree.annotations_of(job)
    if not isinstance(json_tree.mapping_at(job, "metadata").get("name"), str):
        return False
    indexed = json_tree.mapping_at(job, "spec").get("completionMode") == "Indexed"
    return indexed and (names.ENTRY in annotations or names.EPOCHS in annotations)


def _add_env(container: Json, added: Sequence[Json]) -> None:
    """In front: a later variable may refer to an earlier one, such as $(LAXITY_JOB_UID)."""
    env, sources = _object_list(container, "env"), _object_list(container, "envFrom")
    if env is None:
        return
    ours = [row["name"] for row in added]
    container["env"] = [*added, *(row for row in env if row.get("name") not in ours)]
    has_url = any(row.get("name") == names.ENV_URL for row in env)
    if sources is not None and not has_url and not any(map(_is_ours, sources)):
        secret = {"secretRef": {"name": WORKER_SECRET, "optional": True}}
        container["envFrom"] = [*sources, secret]


def _literal_variables(job: Json) -> list[Json]:
    metadata = json_tree.mapping_at(job, "metadata")
    annotations = json_tree.annotations_of(job)
    values = {names.ENV_JOB: f"{metadata.get('namespace', 'default')}/{metadata['name']}"}
    values |= {
        env: annotations[key]
        for env, key in FROM_ANNOTATIONS
        if isinstance(annotations.get(key), str)
    }
    return [{"name": name, "value": escape_literal(value)} for name, value in values.items()]


def _is_ours(source: Json) -> bool:
    return bool(json_tree.mapping_at(source, "secretRef").get("name") == WORKER_SECRET)


def _add_volume(container: Json, pod: Json, volume: Json) -> None:
    """What laxity tells the pod, as files."""
    mounts, volumes = _object_list(container, "volumeMounts"), _object_list(pod, "volumes")
    if mounts is None or volumes is None:
        return
    is_mounted = any(row.get("mountPath") == signal.FOLDER for row in mounts)
    if is_mounted or any(row.get("name") == ORDERS for row in volumes):
        return
    container["volumeMounts"] = [*mounts, orders_mount()]
    pod["volumes"] = [*volumes, volume]


def _object_list(parent: Json, key: str) -> list[Json] | None:
    """A list of objects, empty where there is none; None where it is something else."""
    rows = parent.get(key)
    if rows is None:
        return []
    is_list = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    return rows if is_list else None
