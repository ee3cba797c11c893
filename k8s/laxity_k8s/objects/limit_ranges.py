"""What the LimitRanges of a namespace make of a pod, and why they refuse one.

The API server's LimitRanger fills in what the containers of a pod do not say, after a limit without a
request has become one. Then it compares each container, and the pod as a whole, with what is allowed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from laxity import json_tree
from laxity.job.accelerators import KINDS
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.quantities import parse_quantity

SCOPES: Final = ("Container", "Pod")
Resources = Mapping[str, Mapping[str, Any]]  # requests and limits, by resource


def complete_job(job: Json, ranges: Sequence[Json]) -> Json:
    """The Job with the template that its pods will have."""
    template = json_tree.mapping_at(job, "spec", "template")
    completed = complete_template(template, ranges)
    if completed is template:
        return job
    return {**job, "spec": {**job["spec"], "template": completed}}


def complete_template(template: Json, ranges: Sequence[Json]) -> Json:
    """The template with what these ranges give containers by default; the same object if nothing."""
    defaults = [
        (json_tree.mapping_at(limit, "default"), json_tree.mapping_at(limit, "defaultRequest"))
        for _, limit in _list_limits(ranges, "Container")
    ]
    if not any(map(any, defaults)):
        return template
    spec = json_tree.mapping_at(template, "spec")
    filled = {
        kind: [_fill_in(container, defaults) for container in json_tree.list_at(spec, kind)]
        for kind in KINDS
        if kind in spec
    }
    return {**template, "spec": {**spec, **filled}}


def find_breach(template: Json, ranges: Sequence[Json]) -> str:
    """Why the API server will refuse pods of this completed template, in words; or ""."""
    spec = json_tree.mapping_at(template, "spec")
    containers, before = (
        [_resources_of(container) for container in json_tree.list_at(spec, kind)] for kind in KINDS
    )
    asked = {"Container": [*containers, *before], "Pod": [_sum_up(containers, before)]}
    for scope in SCOPES:
        for name, limit in _list_limits(ranges, scope):
            for resources in asked[scope]:
                if problem := _compare(limit, resources, scope.lower()):
                    return f"limit range {name} of its namespace {problem}"
    return ""


def _list_limits(ranges: Sequence[Json], scope: str) -> Iterator[tuple[str, Json]]:
    for item in ranges:
        for limit in json_tree.list_at(item, "spec", "limits"):
            if json_tree.get_in(limit, "type") == scope:
                yield str(json_tree.get_in(item, "metadata", "name")), limit


def _fill_in(container: Any, defaults: Sequence[tuple[Json, Json]]) -> Any:
    if not isinstance(container, dict):
        return container
    limits = json_tree.mapping_at(container, "resources", "limits")
    requests = {**limits, **json_tree.mapping_at(container, "resources", "requests")}
    for of_limits, of_requests in defaults:
        limits, requests = {**of_limits, **limits}, {**of_requests, **requests}
    resources = json_tree.mapping_at(container, "resources")
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _resources_of(container: Any) -> Resources:
    limits = json_tree.mapping_at(container, "resources", "limits")
    requests = {**limits, **json_tree.mapping_at(container, "resources", "requests")}
    return {"limits": limits, "requests": requests}


def _sum_up(containers: Sequence[Resources], before: Sequence[Resources]) -> Resources:
    """What the pod asks for: its containers together, or one that runs before them."""
    return {
        kind: {
            resource: max(
                sum(_amount_of(item, kind, resource) for item in containers),
                *(_amount_of(item, kind, resource) for item in before),
                0.0,
            )
            for resource in {key for item in (*containers, *before) for key in item[kind]}
        }
        for kind in ("requests", "limits")
    }


def _amount_of(resources: Resources, kind: str, resource: str) -> float:
    return parse_quantity(resources[kind].get(resource)) or 0.0


def _compare(limit: Json, resources: Resources, scope: str) -> str:
    """What is wrong with these resources of a container or pod."""
    for resource, text in json_tree.mapping_at(limit, "max").items():
        most, asked = parse_quantity(text), _amount_of(resources, "limits", resource)
        if most is not None and asked > most:
            return f"allows {resource} {most:g} per {scope}; {asked:g} is asked for"
        if most is not None and resource not in resources["limits"]:
            return f"allows {resource} {most:g} per {scope}; set a limit of {resource}"
    for resource, text in json_tree.mapping_at(limit, "min").items():
        least, asked = parse_quantity(text), _amount_of(resources, "requests", resource)
        if least is not None and asked < least:
            return f"wants {resource} {least:g} or more per {scope}; {asked:g} is requested"
    for resource, text in json_tree.mapping_at(limit, "maxLimitRequestRatio").items():
        ratio, asked = parse_quantity(text), _amount_of(resources, "requests", resource)
        most = _amount_of(resources, "limits", resource)
        if ratio is not None and (not asked or most > ratio * asked):
            wants = f"wants the limit of {resource} to be at most {ratio:g} times the request"
            return f"{wants} per {scope}; they are {most:g} and {asked:g}"
    return ""
