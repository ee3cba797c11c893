"""JSON merge patches (RFC 7386), and reading deep fields of JSON that may not be there."""

from collections.abc import Mapping
from typing import Any, Final

from laxity.parsing import whole_number

MOST_REVISIONS: Final = 2**63


def merge(target: Any, patch: Any) -> Any:
    """The target after the patch: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def dig(value: Any, *path: str | int) -> Any:
    """`dig(job, "spec", "template", "spec")`: None as soon as a step is missing."""
    for step in path:
        if isinstance(value, dict):  # nearly always: asking for any Mapping costs ten times that
            value = value.get(step)
        elif isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def table(value: Any, *path: str | int) -> dict[str, Any]:
    """The object at a path; an empty one where there is none."""
    value_at = dig(value, *path)
    return value_at if isinstance(value_at, dict) else {}


def items(value: Any, *path: str | int) -> list[Any]:
    """The list at a path; an empty one where there is none."""
    value_at = dig(value, *path)
    return value_at if isinstance(value_at, list) else []


def annotations(job: Any) -> dict[str, str]:
    return table(job, "metadata", "annotations")


def labels(job: Any) -> dict[str, str]:
    return table(job, "metadata", "labels")


def identity(thing: Any) -> str:
    """An id as namespace/name, or the name alone for what has no namespace."""
    namespace = dig(thing, "metadata", "namespace")
    name = str(dig(thing, "metadata", "name") or "")
    return f"{namespace}/{name}" if namespace else name


def revision(thing: Any) -> int:
    """The resourceVersion of an object; 0 where there is none. They grow with every change."""
    return whole_number(dig(thing, "metadata", "resourceVersion"), most=MOST_REVISIONS) or 0
