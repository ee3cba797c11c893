"""The types of those fields of a Job that the local cluster reads; what has another is refused.

An API server checks every field against its schema. Here only what is read later is checked: a list
where an object is due must be an answer to its writer, not an accident in the controller.
"""

from typing import Any, Final

TEXTS: Final = "texts by name"  # an object whose values are all text
ANY: Final[dict[str, Any]] = {}  # an object, whatever is in it

_POD_METADATA: Final[dict[str, Any]] = {"labels": TEXTS, "annotations": TEXTS}
_CONTAINER: Final[dict[str, Any]] = {
    "name": str,
    "image": str,
    "command": [str],
    "args": [str],
    "workingDir": str,
    "env": [{"name": str, "value": str, "valueFrom": {"fieldRef": {"fieldPath": str}}}],
    "resources": {"limits": ANY, "requests": ANY},
}
_TERM: Final[dict[str, Any]] = {
    "matchFields": [{"key": str, "operator": str, "values": [str]}],
    "matchExpressions": [{"key": str, "operator": str, "values": [str]}],
}
_TOLERATION: Final[dict[str, Any]] = {"key": str, "operator": str, "value": str, "effect": str}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_POD: Final[dict[str, Any]] = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [{"name": str}],
    "restartPolicy": str,
    "terminationGracePeriodSeconds": int,
    "hostname": str,
    "nodeName": str,
    "nodeSelector": TEXTS,
    "tolerations": [_TOLERATION],
    "affinity": {
        "nodeAffinity": {
            _REQUIRED: {"nodeSelectorTerms": [_TERM]},
            _PREFERRED: [{"weight": int, "preference": _TERM}],
        }
    },
}
JOB: Final[dict[str, Any]] = {
    "metadata": {"name": str, "namespace": str, "finalizers": [str], **_POD_METADATA},
    "spec": {
        "suspend": bool,
        "parallelism": int,
        "completions": int,
        "completionMode": str,
        "backoffLimit": int,
        "activeDeadlineSeconds": int,
        "podReplacementPolicy": str,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": str,
                    "onExitCodes": {"operator": str, "values": [int]},
                    "onPodConditions": [{"type": str, "status": str}],
                }
            ]
        },
        "template": {"metadata": _POD_METADATA, "spec": _POD},
    },
    "status": {
        "active": int,
        "ready": int,
        "terminating": int,
        "succeeded": int,
        "failed": int,
        "startTime": str,
        "completedIndexes": str,
        "conditions": [{"type": str, "status": str, "reason": str, "lastTransitionTime": str}],
    },
}


def type_errors(value: Any, shape: Any, where: str = "") -> list[str]:
    """What has another type than the shape says, by its path. Missing fields and null are fine."""
    if value is None:
        return []
    if shape == TEXTS:
        fits = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
        return [] if fits else [f"{where}: Invalid value: {TEXTS} are wanted"]
    if isinstance(shape, type):
        fits = isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
        return [] if fits else [f"{where}: Invalid value: {shape.__name__} is wanted"]
    if not isinstance(value, type(shape)):
        return [f"{where}: Invalid value: {type(shape).__name__} is wanted"]
    if isinstance(shape, list):
        inside = [(f"{where}[{n}]", value_inside, shape[0]) for n, value_inside in enumerate(value)]
        problems = [
            f"{place}: Invalid value: null"
            for place, value_inside, _ in inside
            if value_inside is None
        ]
    else:
        inside = [(f"{where}.{key}".lstrip("."), value.get(key), shape[key]) for key in shape]
        problems = []
    return problems + [
        problem
        for place, value_inside, wanted in inside
        for problem in type_errors(value_inside, wanted, place)
    ]
