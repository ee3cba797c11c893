"""Conditions in a Job's status: whether it is finished, why, since when."""

from laxity.instants import instant_at
from laxity_k8s import json_tree
from laxity_k8s.cluster_api import Json
from laxity_scheduler.model.job import FOREVER

FINAL = ("Complete", "Failed")


def read_condition(job: Json, kind: str) -> str:
    """The status "True" or "False" of a condition, or "" where there is none."""
    for row in json_tree.list_at(job, "status", "conditions"):
        if json_tree.get_in(row, "type") == kind:
            return str(row.get("status", ""))
    return ""


def is_finished(job: Json) -> bool:
    return any(read_condition(job, kind) == "True" for kind in FINAL)


def end_instant(job: Json) -> float:
    """When a finished Job ended, the time of its last condition; infinity if that is not known."""
    if not is_finished(job):
        return FOREVER
    instants = [
        instant_at(json_tree.get_in(row, "lastTransitionTime"))
        for row in json_tree.list_at(job, "status", "conditions")
    ]
    return max((instant for instant in instants if instant is not None), default=FOREVER)
