"""A patch that the API server took, and of which a policy or webhook put something back.

The answer shows the Job as it is stored. What differs there from what was sent was changed on the way:
nobody did it by hand, and sending it again at once would change nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from laxity import json_tree, names
from laxity_k8s.act.adoption import patch_of
from laxity_k8s.cluster_api import Json, Patch, PatchResult
from laxity_k8s.objects import jobs
from laxity_k8s.objects.status_annotation import read_status


def describe_put_back(outcome: PatchResult) -> str:
    """Which fields of a Job's patch are not as they were sent; "" if all are."""
    if outcome.patch.kind != "jobs" or outcome.patch.subresource or outcome.object is None:
        return ""
    fields = sorted(_differing_fields(outcome.patch.body, outcome.object))
    if not fields:
        return ""
    listed = ", ".join(fields)
    return f"a policy or webhook of the cluster puts back {listed}: let it except laxity's account"


def accept_width(job: Json) -> Patch:
    """Note the width that the Job was left with as what was wanted: nobody changed it by hand."""
    status = replace(read_status(job), wanted=jobs.current_width(job))
    return patch_of(job, {"metadata": {"annotations": {names.STATUS: status.to_text()}}})


def _differing_fields(sent: Any, stored: Json) -> Iterator[str]:
    spec = {key: value for key, value in sent.get("spec", {}).items() if key != "template"}
    for where, wished, there in (
        ("spec", spec, json_tree.mapping_at(stored, "spec")),
        ("annotation", _notes(sent, "annotations"), json_tree.annotations_of(stored)),
        ("label", _notes(sent, "labels"), json_tree.labels_of(stored)),
    ):
        for key, value in wished.items():
            if there.get(key) != value:
                yield f"{where}.{key}" if where == "spec" else f"{where} {key}"


def _notes(sent: Any, kind: str) -> Json:
    return json_tree.mapping_at(sent, "metadata", kind)
