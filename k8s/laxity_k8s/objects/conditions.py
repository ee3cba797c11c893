"""Conditions in the status of a Job, a Pod or a Node: what holds, why, since when."""

from laxity import json_tree
from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json
from laxity_scheduler.model.job import FOREVER

FINAL = ("Complete", "Failed")


def find_condition(thing: Json, kind: str) -> Json:
    """The condition of this type; an empty one where there is none."""
    rows = json_tree.list_at(thing, "status", "conditions")
    return next((row for row in rows if json_tree.get_in(row, "type") == kind), {})


def read_condition(thing: Json, kind: str) -> str:
    """The status "True" or "False" of a condition, or "" where there is none."""
    return str(find_condition(thing, kind).get("status", ""))


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
