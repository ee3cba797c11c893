"""What the job controller has seen of a Job: it comes behind, by more the more it has to do.

Nothing in a Job says up to which change its controller has come, but its Suspended condition (or,
before there is one, its start time) says whether it saw it running or suspended last. So a Job that
was suspended holds GPUs until that is `is_observed`: in between its pods may still be made. And no Job is
suspended before its start was noted (`Job.start_seen`): of two changes that the controller has not
seen the condition would tell nothing.
"""

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.conditions import is_finished, read_condition
from laxity_k8s.objects.status_annotation import read_status


def is_observed(job: Json) -> bool:
    """Whether its controller has seen its last start or suspension; True if it never ran.

    A Job that was let run before its controller had ever seen it has no condition, nor a start time.
    """
    suspended_condition = read_condition(job, "Suspended")
    if json_tree.get_in(job, "spec", "suspend"):
        return suspended_condition == "True" or read_status(job).wanted is None
    return suspended_condition != "True" and bool(json_tree.get_in(job, "status", "startTime"))


def may_come(job: Json) -> int:
    """Workers of a suspended Job that its controller, which has not seen that, may still start."""
    if not json_tree.get_in(job, "spec", "suspend") or is_observed(job) or is_finished(job):
        return 0
    done = pods.count_of(json_tree.get_in(job, "status", "succeeded"))
    return max(0, pods.count_of(json_tree.get_in(job, "spec", "parallelism")) - done)
