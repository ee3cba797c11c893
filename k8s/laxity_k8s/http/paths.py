"""Where the five kinds live on an API server, and what its lists leave out."""

from typing import Any, Final

from laxity_k8s.cluster_api import Json, Kind

# The path of its API group and version, and what one object is called.
RESOURCES: Final[dict[Kind, tuple[str, str]]] = {
    "jobs": ("/apis/batch/v1", "Job"),
    "pods": ("/api/v1", "Pod"),
    "nodes": ("/api/v1", "Node"),
    "events": ("/api/v1", "Event"),
    "leases": ("/apis/coordination.k8s.io/v1", "Lease"),
    "resourcequotas": ("/api/v1", "ResourceQuota"),
    "limitranges": ("/api/v1", "LimitRange"),
}


def whole_items(kind: Kind, answer: dict[str, Any]) -> tuple[Json, ...]:
    """The objects of a list. Each says what it is, which only the list itself does by itself."""
    group, name = RESOURCES[kind]
    version = group.removeprefix("/apis/").removeprefix("/api/")
    items: list[Json] = answer.get("items") or []
    for item in items:
        item["apiVersion"], item["kind"] = version, name
    return tuple(items)


def collection_path(kind: Kind, namespace: str = "") -> str:
    """The path of a kind, in one namespace or in all."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{RESOURCES[kind][0]}{inside}/{kind}"


def object_path(kind: Kind, object_id: str, subresource: str = "") -> str:
    """The path of one object, "namespace/name" or, for nodes, "name"."""
    namespace, _, name = object_id.rpartition("/")
    below = f"/{subresource}" if subresource else ""
    return f"{collection_path(kind, namespace)}/{name}{below}"
