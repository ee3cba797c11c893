"""How long one start of a Job may run: by its wall limit, and by Kubernetes' own clocks.

The Job's activeDeadlineSeconds counts from each start, anew after a suspension; that of its pods from
each pod's own start, which is later. Both end a start, so the shorter one is its limit.
"""

from laxity import json_tree
from laxity.job.spec import TrainingSpec
from laxity.parsing import whole_number
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import own_limit_s
from laxity_scheduler.model.job import FOREVER


def start_limit_s(job: Json, spec: TrainingSpec) -> float:
    """Seconds that a start of the Job may run; FOREVER without a limit.

    A declared wall limit is written over the Job's own clock at the next start. Until then the clock
    that runs counts as well, whoever wrote it.
    """
    declared_s = spec.qos.wall_limit_s
    if not json_tree.get_in(job, "spec", "suspend"):
        clock_s = whole_number(json_tree.get_in(job, "spec", "activeDeadlineSeconds"))
    else:
        clock_s = own_limit_s(job) if declared_s is None else None
    limits_s = (declared_s, clock_s, _pod_limit_s(job))
    return min((limit_s for limit_s in limits_s if limit_s is not None), default=FOREVER)


def _pod_limit_s(job: Json) -> int | None:
    """The pods' own limit, where it is one of the whole Job: none of them is made after another."""
    shape = json_tree.mapping_at(job, "spec")
    completions, parallelism = (
        whole_number(shape.get(field)) for field in ("completions", "parallelism")
    )
    if completions is not None and completions > (1 if parallelism is None else parallelism):
        return None
    return whole_number(json_tree.get_in(shape, "template", "spec", "activeDeadlineSeconds"))
