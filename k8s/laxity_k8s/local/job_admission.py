"""What the API server does to a Job before it is stored: defaults, and what may not be changed.

The local cluster must refuse what Kubernetes refuses, or a plan that works here would fail there.
The rules are those of batch/v1 with elastic Indexed Jobs and, before 1.36, a template whose node
affinity changes only while the Job is suspended and has no start time. It runs Jobs of the form that
laxity itself writes. What else Kubernetes knows of Jobs is refused: ignored, it would mean another Job.
"""

import re
from collections.abc import Mapping
from typing import Any

from laxity import json_tree, names
from laxity.job.spec import LONGEST_NAME
from laxity.parsing import whole_number
from laxity_k8s.cluster_api import ApiError, Json
from laxity_k8s.objects.job_schema import JOB, type_errors
from laxity_k8s.objects.pods import MOST_INDEXES

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
FIXED = ("completionMode", "selector", "podFailurePolicy")
NOT_HERE = ("successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "managedBy")
HERE = "on this machine"


def admit_job(job: Json) -> Json:
    """A new Job with its defaults; with laxity's label it starts suspended. 422 if it is invalid."""
    _refuse_job(job, type_errors(job, JOB))
    whole = fill_defaults(job)
    labels = json_tree.labels_of(job)
    if labels.get(names.MANAGED) == "true" and names.KUEUE_QUEUE not in labels:
        whole["spec"]["suspend"] = True
    _refuse_job(whole, _find_problems(whole))
    return whole


def fill_defaults(job: Json) -> Json:
    """What Kubernetes fills in where a field is missing or null."""
    spec = {
        key: value for key, value in json_tree.mapping_at(job, "spec").items() if value is not None
    }
    if "parallelism" not in spec:
        spec.setdefault("completions", 1)
    defaults: Json = {"parallelism": 1, "backoffLimit": 6, "suspend": False, "template": {}}
    return {**job, "metadata": json_tree.mapping_at(job, "metadata"), "spec": {**defaults, **spec}}


def apply_patch(old: Json, patch: Mapping[str, Any]) -> Json:
    """The Job after a patch of all but its status. 422 if the change is not allowed."""
    _refuse_job(old, type_errors(patch, {}, "patch"))
    merged = json_tree.merge_patch(
        old, {key: value for key, value in patch.items() if key != "status"}
    )
    _refuse_job(old, type_errors(merged, JOB))
    new = fill_defaults(merged)
    fixed = ("name", "namespace", "uid", "creationTimestamp")
    unchangeable = {key: old["metadata"][key] for key in fixed if key in old["metadata"]}
    new["metadata"] = {**new["metadata"], **unchangeable}
    if new["spec"] != old["spec"]:
        new["metadata"]["generation"] = (whole_number(old["metadata"].get("generation")) or 1) + 1
    _refuse_job(new, _find_problems(new) + _find_forbidden(old, new))
    return new


def with_status(old: Json, patch: Mapping[str, Any]) -> Json:
    """The Job after a patch of its status, which may carry annotations.

    422 if a running Job would lose its start time.
    """
    notes = json_tree.merge_patch(json_tree.annotations_of(old), json_tree.annotations_of(patch))
    status = json_tree.merge_patch(old.get("status"), patch.get("status") or {})
    new = {**old, "metadata": {**old["metadata"], "annotations": notes}, "status": status}
    _refuse_job(old, type_errors(new, JOB))
    lost = json_tree.get_in(old, "status", "startTime") and not json_tree.get_in(
        new, "status", "startTime"
    )
    if lost and not old["spec"].get("suspend"):
        _refuse_job(new, ["status.startTime: Required value: startTime cannot be removed"])
    return new


def _find_problems(job: Json) -> list[str]:
    spec = job["spec"]
    problems = []
    name = str(json_tree.get_in(job, "metadata", "name") or "")
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        problems.append(
            f'metadata.name: Invalid value: "{name}": lower case letters, digits, - and .'
        )
    for field in ("parallelism", "completions", "backoffLimit"):
        value = spec.get(field)
        if value is not None and (not isinstance(value, int) or value < 0):
            problems.append(f"spec.{field}: Invalid value: {value}: must be at least 0")
        elif value is not None and field != "backoffLimit" and value > MOST_INDEXES:
            problems.append(f"spec.{field}: Invalid value: {value}: at most {MOST_INDEXES}")
    if spec.get("completionMode") != "Indexed":
        problems.append(f"spec.completionMode: {HERE} a Job is Indexed: write Indexed")
    elif spec.get("completions") is None:
        problems.append("spec.completions: Required value: when completion mode is Indexed")
    problems += [
        f"spec.{key}: {HERE} it has no effect: leave it out, or run the Job on Kubernetes"
        for key in NOT_HERE
        if key in spec
    ]
    return problems + _policy_problems(spec) + _template_problems(spec)


def _policy_problems(spec: Json) -> list[str]:
    """Rules that laxity does not write: it ignores disruptions, and some exit codes fail the Job."""
    return [
        f"spec.podFailurePolicy.rules[{number}]: {HERE} a rule is action FailJob with onExitCodes "
        "(operator In), or action Ignore with onPodConditions (type DisruptionTarget)"
        for number, rule in enumerate(json_tree.list_at(spec, "podFailurePolicy", "rules"))
        if not _is_known_rule(rule)
    ]


def _is_known_rule(rule: Json) -> bool:
    if rule.get("action") == "FailJob":
        codes = rule.get("onExitCodes") or {}
        return codes.get("operator") == "In" and "values" in codes and "containerName" not in codes
    kinds = [row.get("type") for row in json_tree.list_at(rule, "onPodConditions")]
    return rule.get("action") == "Ignore" and kinds == ["DisruptionTarget"]


def _template_problems(spec: Json) -> list[str]:
    pod = json_tree.mapping_at(spec, "template", "spec")
    problems = []
    if not json_tree.list_at(pod, "containers"):
        problems.append("spec.template.spec.containers: Required value")
    policy = pod.get("restartPolicy", "Always")
    if policy != "Never":
        problems.append(
            f'spec.template.spec.restartPolicy: Unsupported value: "{policy}": {HERE} it is "Never"'
        )
    return problems


def _find_forbidden(old: Json, new: Json) -> list[str]:
    before, after = old["spec"], new["spec"]
    problems = [
        f"spec.{key}: field is immutable" for key in FIXED if before.get(key) != after.get(key)
    ]
    if before.get("completions") != after.get("completions") and not _is_elastic(before, after):
        problems.append(
            f"spec.completions: Invalid value: {after.get('completions')}: field is immutable unless "
            "it equals parallelism before and after, in Indexed completion mode"
        )
    movable = before.get("suspend") and not json_tree.get_in(old, "status", "startTime")
    templates = [spec["template"] for spec in (before, after)]
    if movable:
        templates = list(map(without_placement, templates))
    same = templates[0] == templates[1]
    return problems if same else [*problems, "spec.template: Invalid value: field is immutable"]


def _is_elastic(before: Json, after: Json) -> bool:
    return (
        before.get("completions") == before.get("parallelism")
        and after.get("completions") is not None
        and after.get("completions") == after.get("parallelism")
    )


def without_placement(template: Json) -> Json:
    """A template without what says where its pods may run."""
    spec = dict(template.get("spec", {}))
    for key in ("nodeSelector", "tolerations", "schedulingGates"):
        spec.pop(key, None)
    affinity = {k: v for k, v in (spec.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
    metadata = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if key not in {"labels", "annotations"}
    }
    return {"metadata": metadata, "spec": {**spec, "affinity": affinity}}


def _refuse_job(job: Json, problems: list[str]) -> None:
    if problems:
        raise ApiError(
            f'Job "{json_tree.object_id(job)}" is invalid: {"; ".join(problems)}', status=422
        )
