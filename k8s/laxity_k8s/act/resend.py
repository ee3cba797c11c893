"""Patches that are sent again, onto the Job as it is by now: after it was reset, or a race was lost.

A race that only the Job's status has won, or notes of somebody else, was about nothing that was
decided on: the same patch still holds.
"""

from typing import Any

from laxity import json_tree, names
from laxity_k8s.act.patches import JobPatch
from laxity_k8s.cluster_api import Json, Patch


def reset_patch(one: JobPatch) -> Patch:
    meta = {"resourceVersion": one.patch.body["metadata"]["resourceVersion"]}
    body = {"metadata": meta, "status": {"startTime": None}}
    return Patch("jobs", one.patch.id, body, subresource="status")


def onto_revision(one: JobPatch, job: Json) -> JobPatch:
    return JobPatch(at_revision(one.patch, job), one.turn, one.reset_first, one.reasons)


def at_revision(patch: Patch, job: Json) -> Patch:
    meta = {**patch.body["metadata"], "resourceVersion": job["metadata"]["resourceVersion"]}
    return Patch(patch.kind, patch.id, {**patch.body, "metadata": meta}, patch.subresource)


def is_of_revision(patch: Patch, job: Json | None) -> bool:
    """Whether the patch was made of the Job as it is here."""
    wanted = json_tree.get_in(patch.body, "metadata", "resourceVersion")
    return job is not None and wanted == json_tree.get_in(job, "metadata", "resourceVersion")


def is_alike(latest: Json, shown: Json | None) -> bool:
    """Nothing that was decided on has changed: only the status, or notes of somebody else."""
    return shown is not None and inputs_of_decision(latest) == inputs_of_decision(shown)


def inputs_of_decision(job: Json) -> tuple[Any, ...]:
    notes = {**json_tree.labels_of(job), **json_tree.annotations_of(job)}
    ours = {key: notes[key] for key in notes if key.startswith(f"{names.DOMAIN}/")}
    return (
        json_tree.get_in(job, "metadata", "uid"),
        json_tree.get_in(job, "metadata", "deletionTimestamp"),
        names.KUEUE_QUEUE in notes,
        json_tree.labels_of(job).get(names.MANAGED),
        ours,
        json_tree.mapping_at(job, "spec"),
    )
