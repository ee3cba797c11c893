"""Where the five kinds live on an API server, and what its lists leave out."""

from typing import Any, Final

from laxity_k8s.cluster_api import Json, Kind

GROUPS: Final[dict[Kind, str]] = {
    "jobs": "/apis/batch/v1",
    "pods": "/api/v1",
    "nodes": "/api/v1",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "resourcequotas": "/api/v1",
    "limitranges": "/api/v1",
}

KINDS: Final[dict[Kind, str]] = {
    "jobs": "Job",
    "pods": "Pod",
    "nodes": "Node",
    "events": "Event",
    "leases": "Lease",
    "resourcequotas": "ResourceQuota",
    "limitranges": "LimitRange",
}


def whole_items(kind: Kind, answer: dict[str, Any]) -> tuple[Json, ...]:
    """The objects of a list. Each says what it is, which only the list itself does by itself."""
    version = GROUPS[kind].removeprefix("/apis/").removeprefix("/api/")
    items: list[Json] = answer.get("items") or []
    for item in items:
        item["apiVersion"], item["kind"] = version, KINDS[kind]
    return tuple(items)


def collection_path(kind: Kind, namespace: str = "") -> str:
    """The path of a kind, in one namespace or in all."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{GROUPS[kind]}{inside}/{kind}"


def object_path(kind: Kind, object_id: str, subresource: str = "") -> str:
    """The path of one object, "namespace/name" or, for nodes, "name"."""
    namespace, _, name = object_id.rpartition("/")
    below = f"/{subresource}" if subresource else ""
    return f"{collection_path(kind, namespace)}/{name}{below}"


def object_id(item: dict[str, object]) -> str:
    """The id of a JSON object: "namespace/name", or "name" outside namespaces."""
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101 - every object of an API server has metadata
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
