"""What all views share: their type, and how values of a Job's JSON become values of a view."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from laxity import json_tree

Json = dict[str, Any]
TERMINAL_STATES: Final = frozenset({"finished", "failed", "cancelled"})


def job_id_of(manifest: Mapping[str, Any]) -> str:
    """The "namespace/name" of a Job."""
    metadata = manifest.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name', '')}"


def uids_by_id(jobs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The uids of the observed Jobs, by job id."""
    return {job_id_of(manifest): json_tree.uid_of(manifest) for manifest in jobs}


def finite_or_none(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
