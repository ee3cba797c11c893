"""Jobs are let go of: label and outputs are taken off them, and what runs goes on.

Pods of a Job that waits are to go wherever the Job itself lets them: the node affinity that its last
start added is taken off. While pods run Kubernetes lets nobody change it.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import filterfalse

from laxity import json_tree, names
from laxity_k8s.act.rights import refusal_text
from laxity_k8s.cluster_api import NOT_FOUND, ApiError, ClusterApi, Json, Patch, PatchResult
from laxity_k8s.objects.conditions import is_finished
from laxity_k8s.objects.jobs import current_width
from laxity_k8s.objects.node_rows.affinity import affinity_patch
from laxity_scheduler.live import Released

LABELS = (names.MANAGED, names.VERDICT_LABEL, names.CLASS_LABEL)


def release_jobs(api: ClusterApi, jobs: Iterable[Json]) -> tuple[list[Json], dict[str, str]]:
    """Live Jobs as they are without laxity, and why the others, by id, could not be patched."""
    released, refused = [], {}
    for job in filterfalse(is_finished, jobs):
        patch, spec = _build_patch(job), _free_spec(job)
        try:
            if spec and json_tree.get_in(job, "status", "startTime"):  # else templates stay fixed
                api.patch(Patch("jobs", patch.id, {"status": {"startTime": None}}, "status"))
            released.append(api.patch(Patch("jobs", patch.id, {**patch.body, **spec})))
        except ApiError as error:
            if error.status != NOT_FOUND:
                refused[patch.id] = refusal_text(
                    PatchResult(patch, status=error.status, message=str(error))
                )
    return released, refused


def count_released(
    released: Sequence[Json], refused: Mapping[str, str], nodes_refused: Mapping[str, str]
) -> Released:
    """What became of a release; Jobs that wait stay suspended."""
    waiting = [json_tree.object_id(job) for job in released if not current_width(job)]
    return Released(len(released), tuple(sorted(waiting)), refused, nodes_refused)


def _build_patch(job: Json) -> Patch:
    notes = _removal_patch(json_tree.annotations_of(job), (*names.OUTPUTS, names.PIN))
    labels = _removal_patch(json_tree.labels_of(job), LABELS)
    metadata = {"labels": labels, "annotations": notes}
    return Patch("jobs", json_tree.object_id(job), {"metadata": metadata})


def _free_spec(job: Json) -> Json:
    """The part of a patch that leans the pods of a Job that waits to no node; {} if there is none."""
    template = None if current_width(job) else affinity_patch(job, ())
    return {"spec": {"template": template}} if template else {}


def _removal_patch(there: Mapping[str, str], keys: Iterable[str]) -> dict[str, None]:
    return {key: None for key in keys if key in there}
