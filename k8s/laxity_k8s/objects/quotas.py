"""How wide the ResourceQuotas of a namespace let a Job be.

Pods that a quota does not allow are never made, so nothing wider is planned or promised. A quota bounds all pods of a namespace at once: its accelerators are counted over time where promises are
planned (`quota_of`). What pods of others than laxity use of it now cannot be used by its Jobs. Quotas
with scopes are passed over: which pods they count is not known before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from laxity import json_tree
from laxity.job.accelerators import is_accelerator
from laxity.job.widths import MOST_WORKERS
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.quantities import parse_quantity

SAME: Final = {"cpu": "requests.cpu", "memory": "requests.memory", "count/pods": "pods"}
COUNTED: Final = ("cpu", "memory")
Used = dict[str, float]  # by resource


@dataclass(frozen=True)
class NamespaceLimits:
    """`left` by resource: what laxity's Jobs may use, of how much, by which quota."""

    left: Mapping[str, tuple[float, float, str]] = field(default_factory=dict)

    def find_widest(self, template: Json) -> tuple[int, str]:
        """How many pods of a completed template there may be at once, and what bounds them, in words."""
        demand_of_pod = demand_of(template)
        widest, resource = self.find_room(demand_of_pod, {})
        if not resource:
            return widest, ""
        left, hard, name = self.left[resource]
        others = f", pods of others use {hard - left:g} of it" if left < hard else ""
        problem = f"quota {name} of its namespace allows {resource} {hard:g}{others}"
        return widest, f"{problem}; each worker asks for {demand_of_pod[resource]:g}"

    def find_room(self, asked: Mapping[str, float], used: Mapping[str, float]) -> tuple[int, str]:
        """How many pods that ask so there is room for beside what is used, and what bounds them."""
        widest, bound = MOST_WORKERS, ""
        for resource, each in asked.items():
            if each and resource in self.left:
                workers = max(0, int((self.left[resource][0] - used.get(resource, 0.0)) // each))
                if workers < widest:
                    widest, bound = workers, resource
        return widest, bound

    def quota_of(self, namespace: str, template: Json) -> str:
        """What bounds the accelerators of such pods with those of others there, by its name; or ""."""
        for kind in pods.accelerators_of(template):
            if f"requests.{kind}" in self.left:
                return self.name_quota(namespace, f"requests.{kind}")
        return ""

    def accelerators_left(self, namespace: str) -> dict[str, tuple[str, float]]:
        """(resource, what laxity's Jobs may use of it) by the name that `quota_of` gives."""
        return {
            self.name_quota(namespace, resource): (resource, left)
            for resource, (left, _, _) in self.left.items()
            if is_accelerator(resource.removeprefix("requests."))
        }

    def name_quota(self, namespace: str, resource: str) -> str:
        """What bounds this resource there, as reasons name it."""
        return f"{resource} in quota {namespace}/{self.left[resource][2]}"


def limits_of(quotas: Iterable[Json], foreign: Mapping[str, Used]) -> dict[str, NamespaceLimits]:
    """By namespace; `foreign` is what pods of others use there, by resource."""
    left: dict[str, dict[str, tuple[float, float, str]]] = {}
    for quota in quotas:
        namespace, name = namespace_and_name(quota)
        if json_tree.get_in(quota, "spec", "scopes") or json_tree.get_in(
            quota, "spec", "scopeSelector"
        ):
            continue
        mine = left.setdefault(namespace, {})
        for key, text in json_tree.mapping_at(quota, "spec", "hard").items():
            resource, hard = SAME.get(key, key), parse_quantity(text)
            if hard is None:
                continue
            free = max(0.0, hard - foreign.get(namespace, {}).get(resource, 0.0))
            mine[resource] = min(mine.get(resource, (free, hard, name)), (free, hard, name))
    return {namespace: NamespaceLimits(left[namespace]) for namespace in left}


def add_to(used: Used, asked: Mapping[str, float], many: int) -> None:
    """So many pods that ask so are counted, too."""
    for resource, each in asked.items():
        used[resource] = used.get(resource, 0.0) + each * many


def demand_of(template: Json) -> dict[str, float]:
    """What one pod takes of each resource that a quota may count."""
    demand_by_name = {"pods": 1.0}
    demand_by_name |= {
        f"requests.{name}": float(count) for name, count in pods.accelerators_of(template).items()
    }
    for kind in ("requests", "limits"):
        for name in COUNTED:
            demand_by_name[f"{kind}.{name}"] = _sum_requests(template, name, kind)
    return demand_by_name


def namespace_and_name(thing: Json) -> tuple[str, str]:
    return str(json_tree.get_in(thing, "metadata", "namespace")), str(
        json_tree.get_in(thing, "metadata", "name")
    )


def _sum_requests(template: Json, resource: str, kind: str) -> float:
    containers = json_tree.list_at(template, "spec", "containers")
    return sum(read_request(item, resource, kind) for item in containers)


def read_request(container: Json, resource: str, kind: str) -> float:
    """What it says; a limit is also a request where it says none."""
    text = json_tree.get_in(container, "resources", kind, resource)
    if text is None and kind == "requests":
        text = json_tree.get_in(container, "resources", "limits", resource)
    return parse_quantity(text) or 0.0
