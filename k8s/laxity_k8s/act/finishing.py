"""A training whose result is in is complete, also where it was stopped before its workers had left.

A worker that is told to stop while it closes, or is killed then, does not end with exit 0: its Job
would start once more for nothing. So a suspended Job whose training has returned is completed.
"""

from laxity import json_tree
from laxity_k8s.act.adoption import SUCCESS, TARGET, Tending, success_patch
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.conditions import read_condition
from laxity_scheduler.live import Report

RESULT_IS_IN = "its result is in: complete, though it was stopped before its workers had left"


def find_completion(job: Json, report: Report, *, now: float) -> Tending | None:
    """What completes the Job; None where it runs on, or has no result yet."""
    if not (report.finished and jobs.is_live(job)) or jobs.current_width(job):
        return None
    if json_tree.get_in(job, "spec", "completionMode") != "Indexed":
        return None
    if "True" in (read_condition(job, SUCCESS), read_condition(job, TARGET)):
        return None
    return Tending(success_patch(job, RESULT_IS_IN, now=now), "result_is_in", RESULT_IS_IN)
