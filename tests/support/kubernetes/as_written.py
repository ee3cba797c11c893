"""What of a Job is its writer's, and whether laxity has left it as it was written."""

import copy
from typing import Any, Final

from laxity import names
from laxity_k8s.objects.node_rows.affinity import HELD
from tests.support.kubernetes.history import annotations

Json = dict[str, Any]
SIZE: Final = ("parallelism", "completions")  # laxity may write them on an elastic Job
RULES: Final = ("successPolicy", "maxFailedIndexes", "backoffLimitPerIndex")


def is_elastic(job: Json) -> bool:
    """Whether laxity may resize it: its writer says so, and each of its pods is one worker."""
    spec = job["spec"]
    unsaid = -1 if "parallelism" in spec else 1  # both are 1 where neither is written
    return (
        names.WIDTHS in annotations(job)
        and spec.get("completionMode") == "Indexed"
        and 0 <= spec.get("completions", unsaid) <= spec.get("parallelism", 1)
        and not any(rule in spec for rule in RULES)
    )


def most_at_once(spec: Json) -> int:
    """Pods that run at once: an Indexed Job has never more than it has completions."""
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    is_indexed = spec.get("completionMode") == "Indexed"
    return min(parallelism, completions) if is_indexed and completions else parallelism


def changed(written: Json, job: Json) -> list[str]:
    """Fields that somebody changed and that were not laxity's to change."""
    found = []
    laxitys = {"suspend", "template", *(SIZE if is_elastic(written) else ())}
    if names.WALL_LIMIT in annotations(written):
        laxitys.add("activeDeadlineSeconds")  # of each link
    for where, before, after in (
        ("spec", _spec(written, laxitys), _spec(job, laxitys)),
        ("spec.template", own(written["spec"]["template"]), own(job["spec"]["template"])),
        ("metadata", _meta(written), _meta(job)),
    ):
        found += [
            f"{where}.{key} was {before.get(key)!r:.200} and is {after.get(key)!r:.200}"
            for key in sorted({*before, *after})
            if before.get(key) != after.get(key)
        ]
    return found


def _spec(job: Json, laxitys: set[str]) -> Json:
    spec = {**job["spec"], "parallelism": most_at_once(job["spec"])}
    return {key: value for key, value in spec.items() if key not in laxitys}


def own(template: Json) -> Json:
    """Fields of a template and its pods, without the nodes and the token that laxity writes."""
    metadata, spec = copy.deepcopy(template.get("metadata", {})), copy.deepcopy(template["spec"])
    metadata.get("annotations", {}).pop(names.WORKER_TOKEN, None)
    affinity = spec.pop("affinity", None) or {}
    near = affinity.pop("nodeAffinity", {})
    required, preferred = (
        near.get(f"{how}DuringSchedulingIgnoredDuringExecution")
        for how in ("required", "preferred")
    )
    affinity["required"] = _unnamed([*(required or {}).get("nodeSelectorTerms", ())])
    affinity["preferred"] = _unnamed([one["preference"] for one in preferred or ()])
    return {**_full(metadata), **spec, **_full(affinity)}


def _unnamed(terms: list[Json]) -> list[Json]:
    """Different terms of node affinity, without the nodes that laxity has named in them."""
    found: list[Json] = []
    for term in terms:
        rest = _without(term, {"matchFields", "matchExpressions"})
        labels = [one for one in term.get("matchExpressions", ()) if one.get("key") != HELD]
        rest |= {"matchExpressions": labels} if labels else {}
        if rest and rest not in found:
            found.append(rest)
    return found


def _meta(job: Json) -> Json:
    """Labels and annotations of its writer."""
    mine = ("labels", "annotations", "ownerReferences")
    found = {key: job["metadata"].get(key) for key in mine}
    outputs = {*names.OUTPUTS, names.VERDICT_LABEL, names.CLASS_LABEL}
    return _full(
        {
            key: _without(value, outputs) if isinstance(value, dict) else value
            for key, value in found.items()
        }
    )


def _full(table: Json) -> Json:
    return {key: value for key, value in table.items() if value}


def _without(table: Json, keys: set[str]) -> Json:
    return {key: value for key, value in table.items() if key not in keys}
