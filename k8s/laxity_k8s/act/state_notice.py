"""A Job says whether its training holds state, as its workers reported it at an epoch's end."""

from dataclasses import replace

from laxity import json_tree, names
from laxity_k8s.act.adoption import Tending, patch_of
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.status_annotation import read_status
from laxity_scheduler.live import Reports
from laxity_scheduler.model.reasons import reason


def find_state_notice(job: Json, reports: Reports) -> Tending | None:
    """What writes it on the Job; None where it stands there, or nobody has reported."""
    status, report = read_status(job), reports(json_tree.uid_of(job))
    if report.holds_state in {None, status.holds_state} or not jobs.is_live(job):
        return None
    cause = reason("holds_state" if report.holds_state else "holds_no_state")
    noted = replace(status, holds_state=bool(report.holds_state)).to_text()
    body = {"metadata": {"annotations": {names.STATUS: noted}}}
    return Tending(patch_of(job, body), cause.code, cause.text)
