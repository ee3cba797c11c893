"""JSON merge patches (RFC 7386), and reading deep fields of JSON that may not be there."""

from collections.abc import Mapping
from typing import Any, Final

from laxity.parsing import whole_number

MOST_REVISIONS: Final = 2**63


def merge_patch(target: Any, patch: Any) -> Any:
    """The target after the patch: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def get_in(value: Any, *path: str | int) -> Any:
    """`get_in(job, "spec", "template", "spec")`: None as soon as a step is missing."""
    for step in path:
        if isinstance(value, dict):  # nearly always: asking for any Mapping costs ten times that
            value = value.get(step)
        elif isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def mapping_at(value: Any, *path: str | int) -> dict[str, Any]:
    """The object at a path; an empty one where there is none."""
    value_at = get_in(value, *path)
    return value_at if isinstance(value_at, dict) else {}


def list_at(value: Any, *path: str | int) -> list[Any]:
    """The list at a path; an empty one where there is none."""
    value_at = get_in(value, *path)
    return value_at if isinstance(value_at, list) else []


def annotations_of(job: Any) -> dict[str, str]:
    return mapping_at(job, "metadata", "annotations")


def labels_of(job: Any) -> dict[str, str]:
    return mapping_at(job, "metadata", "labels")


def object_id(thing: Any) -> str:
    """An id as namespace/name, or the name alone for what has no namespace."""
    namespace = get_in(thing, "metadata", "namespace")
    name = str(get_in(thing, "metadata", "name") or "")
    return f"{namespace}/{name}" if namespace else name


def uid_of(thing: Any) -> str:
    return str(get_in(thing, "metadata", "uid") or "")


def revision_of(thing: Any) -> int:
    """The resourceVersion of an object; 0 where there is none. They grow with every change."""
    return whole_number(get_in(thing, "metadata", "resourceVersion"), most=MOST_REVISIONS) or 0
