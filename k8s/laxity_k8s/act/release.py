"""Jobs are let go of: label and outputs are taken off them, and what runs goes on."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from laxity import names
from laxity_k8s import json_tree
from laxity_k8s.cluster_api import ApiError, ClusterApi, Json, Patch

LABELS = (names.MANAGED, names.VERDICT_LABEL, names.CLASS_LABEL)


def release_jobs(api: ClusterApi, jobs: Iterable[Json]) -> list[Json]:
    """The Jobs as they are without laxity; those that cannot be patched are left out."""
    released = []
    for job in jobs:
        notes = _removal_patch(json_tree.annotations_of(job), (*names.OUTPUTS, names.PIN))
        metadata = {
            "labels": _removal_patch(json_tree.labels_of(job), LABELS),
            "annotations": notes,
        }
        with suppress(ApiError):
            released.append(
                api.patch(Patch("jobs", json_tree.object_id(job), {"metadata": metadata}))
            )
    return released


def _removal_patch(there: Mapping[str, str], keys: Iterable[str]) -> dict[str, None]:
    return {key: None for key in keys if key in there}
