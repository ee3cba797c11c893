"""The pod that a worker runs in: one container `train`, and what the user adds to it.

Overrides are a flat mapping. `image`, `env`, `envFrom`, `resources`, `volumeMounts`, `workingDir`
and `imagePullPolicy` go to the container, `labels` and `annotations` to the pod's metadata, fields
of a PodSpec to the pod. laxity's own fields cannot be overridden: it would lose sight of the job.
"""

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from laxity import names
from laxity.job import signal
from laxity.job.accelerators import GPU, count_accelerators
from laxity.job.qos import QoSError

Json = dict[str, Any]

DEFAULT_IMAGE: Final = "laxity-worker:latest"
DEFAULT_GRACE_S: Final = 30
CONTAINER_FIELDS: Final = frozenset(
    {"env", "envFrom", "image", "imagePullPolicy", "resources", "volumeMounts", "workingDir"}
)
METADATA_FIELDS: Final = frozenset({"annotations", "labels"})
POD_FIELDS: Final = frozenset(
    {
        "affinity",
        "dnsConfig",
        "dnsPolicy",
        "hostIPC",
        "hostNetwork",
        "imagePullSecrets",
        "initContainers",
        "nodeSelector",
        "priorityClassName",
        "runtimeClassName",
        "schedulerName",
        "securityContext",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
OVERRIDES: Final = tuple(sorted(CONTAINER_FIELDS | METADATA_FIELDS | POD_FIELDS))
# Written by laxity into every worker; a user's value would contradict the Job.
RESERVED_ENV: Final = frozenset(
    {
        names.ENV_CODE,
        names.ENV_EPOCHS,
        names.ENV_INDEX,
        names.ENV_JOB,
        names.ENV_JOB_UID,
        names.ENV_LAUNCHER,
        names.ENV_MODEL,
        names.ENV_PARAMETERS,
        names.ENV_POD_IP,
        names.ENV_RESUMES,
        names.ENV_TOKEN,
        names.ENV_TRAINING,
    }
)
LAST_WORDS: Final = "FallbackToLogsOnError"  # a pod that fails tells its last lines itself
ORDERS: Final = "laxity"  # the volume that shows a pod its own signal annotation
FROM_THE_POD: Final = (
    (names.ENV_JOB_UID, "metadata.labels['batch.kubernetes.io/controller-uid']"),
    (names.ENV_POD_IP, "status.podIP"),
    (names.ENV_TOKEN, f"metadata.annotations['{names.WORKER_TOKEN}']"),
)
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LONGEST_ENV_VALUE: Final = 131_072


def pod_template(
    *,
    command: str | None,
    image: str | None,
    env: Mapping[str, str],
    gpus_per_worker: int,
    overrides: Mapping[str, Any],
) -> Json:
    """The Job's spec.template. Without an image the workers run on this machine's own Python."""
    image = image or overrides.get("image")
    resources = dict(overrides.get("resources") or {})
    limits = {_accelerator_resource(resources): str(gpus_per_worker)}
    container: Json = {
        "name": "train",
        "image": image or DEFAULT_IMAGE,
        "env": [*own_fields(), *_env_list(env), *_env_list(overrides.get("env") or {})],
        **_select_fields(overrides, CONTAINER_FIELDS - {"env", "image", "volumeMounts"}),
        "volumeMounts": [*(overrides.get("volumeMounts") or ()), orders_mount()],
        "resources": {**resources, "limits": {**(resources.get("limits") or {}), **limits}},
    }
    container.setdefault("terminationMessagePolicy", LAST_WORDS)
    if command is not None:
        python = "python" if image else sys.executable
        container["command"] = [python, "-m", "laxity.worker", escape_literal(command)]
    return {
        "metadata": {
            **_select_fields(overrides, METADATA_FIELDS),
            "labels": {**(overrides.get("labels") or {}), names.MANAGED: "true"},
        },
        "spec": {
            "terminationGracePeriodSeconds": DEFAULT_GRACE_S,
            **_select_fields(overrides, POD_FIELDS - {"volumes"}),
            "volumes": [*(overrides.get("volumes") or ()), orders_volume()],
            "restartPolicy": "Never",
            "containers": [container],
        },
    }


def orders_volume(*, file: str = signal.FILE, annotation: str = names.SIGNAL) -> Json:
    """The pod's signal annotation as a file, for when the service is out of its reach; or another."""
    item = {"path": file, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
    return {"name": ORDERS, "downwardAPI": {"items": [item]}}


def orders_mount() -> Json:
    """Where the worker finds it."""
    return {"name": ORDERS, "mountPath": signal.FOLDER, "readOnly": True}


def own_fields(fields: Iterable[tuple[str, str]] = FROM_THE_POD) -> list[Json]:
    """What a pod knows of itself, as variables of its worker."""
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields]


def escape_literal(text: str) -> str:
    """The text as Kubernetes hands it on unchanged: it would expand $(NAME) and take $$ for $."""
    return text.replace("$", "$$")


def check_env(env: Mapping[Any, Any], where: str = "env") -> None:
    """QoSError unless these may be variables of a worker."""
    if not isinstance(env, Mapping):
        raise QoSError(where, f"{env!r:.60} is no mapping of names to texts")
    for name, value in env.items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            raise QoSError(where, f"{name!r:.60} is no name of a variable")
        if name in RESERVED_ENV:
            raise QoSError(where, f"{name} is written by laxity itself; leave it out")
        if not isinstance(value, str):
            raise QoSError(where, f"{name} = {value!r:.60} is no text; write {str(value)!r:.60}")
        if len(value) > _LONGEST_ENV_VALUE or "\0" in value:
            raise QoSError(where, f"{name} is too long or holds a zero byte")


def check_template(template: Mapping[str, Any], gpus_per_worker: int) -> None:
    """QoSError unless these are overrides that leave laxity's own fields alone."""
    if not isinstance(template, Mapping):
        raise QoSError("template", f"{template!r:.60} is no mapping of pod fields")
    for key in template:
        if key not in OVERRIDES:
            nearest = difflib.get_close_matches(str(key)[:100], OVERRIDES, n=1, cutoff=0.0)[0]
            raise QoSError(
                "template", f"{key!r:.60} cannot be overridden; the nearest known is {nearest!r}"
            )
    env = template.get("env") or {}
    if isinstance(env, Mapping):
        check_env(env, "template")
    else:
        _check_env_list(env)
    _check_gpus(template.get("resources") or {}, gpus_per_worker)
    grace_s = template.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    if isinstance(grace_s, bool) or not isinstance(grace_s, int) or grace_s < 1:
        raise QoSError(
            "template",
            f"terminationGracePeriodSeconds {grace_s!r:.40}: at least 1 s is needed to save",
        )


def _check_env_list(env: Any) -> None:
    if not isinstance(env, list) or not all(isinstance(row, dict) and "name" in row for row in env):
        raise QoSError("template", "env is neither a mapping nor a list of {name, value}")
    for row in env:
        if row["name"] in RESERVED_ENV:
            raise QoSError("template", f"{row['name']} is written by laxity itself; leave it out")


def _check_gpus(resources: Any, gpus_per_worker: int) -> None:
    """The GPUs of a worker are said once; another number in the template is an error."""
    if not isinstance(resources, Mapping):
        raise QoSError("template", f"resources {resources!r:.60} is no mapping")
    resource = _accelerator_resource(resources)
    for kind in ("limits", "requests"):
        gpus = (resources.get(kind) or {}).get(resource)
        if gpus is not None and str(gpus) != str(gpus_per_worker):
            raise QoSError(
                "template",
                f"resources.{kind} say {gpus} of {resource} but gpus_per_worker is "
                f"{gpus_per_worker}; say it once, as gpus_per_worker",
            )


def _accelerator_resource(resources: Mapping[str, Any]) -> str:
    """The accelerator that a template names, nvidia.com/gpu if it names none."""
    return next(iter(count_accelerators({"containers": [{"resources": resources}]})), GPU)


def _env_list(env: Any) -> list[Json]:
    if isinstance(env, Mapping):
        return [{"name": name, "value": value} for name, value in env.items()]
    return list(env)


def _select_fields(overrides: Mapping[str, Any], fields: frozenset[str]) -> Json:
    return {key: value for key, value in overrides.items() if key in fields}
