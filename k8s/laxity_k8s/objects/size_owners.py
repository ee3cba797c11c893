"""Who wrote the size of a Job: all that is kept of managedFields, else half of an object's memory."""

from typing import Final

from laxity import json_tree
from laxity_k8s.cluster_api import Json

SIZE_FIELDS: Final = ("f:parallelism", "f:suspend")


def keep_size_owners(thing: Json) -> None:
    """Cut the managedFields of an object down to those who wrote its size; they are nobody else's."""
    owned = json_tree.list_at(thing, "metadata", "managedFields")
    if not owned:
        return
    kept = [
        {"manager": entry.get("manager"), "fieldsV1": {"f:spec": {name: {} for name in fields}}}
        for entry in owned
        if (fields := [field for field in SIZE_FIELDS if field in _spec_of(entry)])
    ]
    thing["metadata"]["managedFields"] = kept


def size_owners(job: Json, field: str) -> set[str]:
    """The field managers that wrote this one of `SIZE_FIELDS`."""
    owned = json_tree.list_at(job, "metadata", "managedFields")
    return {str(entry.get("manager")) for entry in owned if field in _spec_of(entry)}


def _spec_of(entry: Json) -> Json:
    return json_tree.mapping_at(entry, "fieldsV1", "f:spec")
