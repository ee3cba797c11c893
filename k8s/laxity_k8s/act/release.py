"""Jobs are let go of: label and outputs are taken off them, and what runs goes on."""

from collections.abc import Iterable, Mapping

from laxity import json_tree, names
from laxity_k8s.act.rights import refusal_text
from laxity_k8s.cluster_api import NOT_FOUND, ApiError, ClusterApi, Json, Patch, PatchResult

LABELS = (names.MANAGED, names.VERDICT_LABEL, names.CLASS_LABEL)


def release_jobs(api: ClusterApi, jobs: Iterable[Json]) -> tuple[list[Json], dict[str, str]]:
    """The Jobs as they are without laxity, and why the others, by id, could not be patched."""
    released, refused = [], {}
    for job in jobs:
        patch = _build_patch(job)
        try:
            released.append(api.patch(patch))
        except ApiError as error:
            if error.status != NOT_FOUND:
                refused[patch.id] = refusal_text(
                    PatchResult(patch, status=error.status, message=str(error))
                )
    return released, refused


def _build_patch(job: Json) -> Patch:
    notes = _removal_patch(json_tree.annotations_of(job), (*names.OUTPUTS, names.PIN))
    labels = _removal_patch(json_tree.labels_of(job), LABELS)
    metadata = {"labels": labels, "annotations": notes}
    return Patch("jobs", json_tree.object_id(job), {"metadata": metadata})


def _removal_patch(there: Mapping[str, str], keys: Iterable[str]) -> dict[str, None]:
    return {key: None for key in keys if key in there}
