"""Conditions in a Job's status: whether it is finished, why, since when."""

from laxity.parsing import instant_at
from laxity_k8s import json_tree
from laxity_k8s.cluster_api import Json
from laxity_scheduler.model.job import FOREVER

FINAL = ("Complete", "Failed")


def condition(job: Json, kind: str) -> str:
    """The status "True" or "False" of a condition, or "" where there is none."""
    for one in json_tree.items(job, "status", "conditions"):
        if json_tree.dig(one, "type") == kind:
            return str(one.get("status", ""))
    return ""


def finished(job: Json) -> bool:
    return any(condition(job, kind) == "True" for kind in FINAL)


def ended_at(job: Json) -> float:
    """When a finished Job ended, the time of its last condition; infinity if that is not known."""
    if not finished(job):
        return FOREVER
    told = [
        instant_at(json_tree.dig(one, "lastTransitionTime"))
        for one in json_tree.items(job, "status", "conditions")
    ]
    return max((at for at in told if at is not None), default=FOREVER)
