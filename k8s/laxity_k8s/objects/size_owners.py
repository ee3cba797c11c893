"""Who wrote the size of a Job: all that is kept of managedFields, else half of an object's memory."""

from typing import Final

from laxity import json_tree, names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.status_annotation import read_status

SIZE_FIELDS: Final = ("f:parallelism", "f:suspend")
# Field managers of tools that apply files: what they write is no wish of this moment. The admission
# policies in k8s/manifests have the same list.
APPLIERS: Final = frozenset(
    {
        "Helm",
        "Terraform",
        "argocd-controller",
        "helm",
        "helm-controller",
        "kubectl",
        "kubectl-client-side-apply",
        "kustomize-controller",
        "pulumi-kubernetes",
    }
)


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


def is_applied(job: Json) -> bool:
    """Whether it was a tool that applies files, and nobody by hand, that changed the Job's size.

    A field that somebody changes is from then on in the name of that field manager.
    """
    if names.PIN in json_tree.annotations_of(job):
        return False
    runs = jobs.current_width(job) > 0
    field = "f:parallelism" if runs and read_status(job).wanted else "f:suspend"
    return not APPLIERS.isdisjoint(_size_owners(job, field))


def _size_owners(job: Json, field: str) -> set[str]:
    """The field managers that wrote this one of `SIZE_FIELDS`."""
    owned = json_tree.list_at(job, "metadata", "managedFields")
    return {str(entry.get("manager")) for entry in owned if field in _spec_of(entry)}


def _spec_of(entry: Json) -> Json:
    return json_tree.mapping_at(entry, "fieldsV1", "f:spec")
