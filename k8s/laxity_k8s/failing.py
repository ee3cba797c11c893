"""A Job whose workers fail again and again without finishing an epoch is failed, with their error.

What it dies of is in the user's project (an import, an image, too little memory), and no start mends
that: going on would hold GPUs and a promise for nothing. A backoffLimit of 0 fails a Job that has a
failed pod, activeDeadlineSeconds one none of whose pods could even start; the rest is the job
controller's, on Kubernetes and here.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from laxity import names
from laxity.qos import QoSError
from laxity.widths import MOST_WORKERS
from laxity_k8s import merge, objects, pods
from laxity_k8s.api import Json
from laxity_k8s.kept import kept
from laxity_k8s.reconcile import ended_at
from laxity_k8s.tending import Tending, patch_of
from laxity_scheduler.engine import Reports
from laxity_scheduler.reasons import Reason, reason

MOST_FAILURES: Final = 5  # of one worker, with no epoch in between
MOST_STARTS: Final = 3  # in vain, since the pods' images or containers cannot be made
NOT_STARTABLE: Final = frozenset(
    {
        "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull",
        "ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RunContainerError",
    }
)  # fmt: skip
ENDS: Final = {"backoffLimit": 0, "activeDeadlineSeconds": 1}


def failing(job: Json, own: Sequence[Json], reports: Reports) -> Tending | None:
    """What fails the Job, and why; None as long as another start may help."""
    why = _keep_failing(job, own, reports) or _cannot_start(job, own)
    if why is None or not _may_fail(job):
        return None
    body = {"metadata": {"annotations": {names.REASON: why.text}}, "spec": dict(ENDS)}
    return Tending(patch_of(job, body), why.code, why.text)


def _may_fail(job: Json) -> bool:
    """A training that is laxity's to look after; a plain Job counts its failures itself."""
    spec = merge.table(job, "spec")
    if not objects.live(job) or names.PIN in merge.annotations(job):
        return False
    if all(spec.get(name) == value for name, value in ENDS.items()):
        return False
    try:
        return not objects.spec_of(job).plain
    except QoSError:
        return False


def _keep_failing(job: Json, own: Sequence[Json], reports: Reports) -> Reason | None:
    found = [pod for pod in own if pods.has_failed(pod)]
    if len(found) < MOST_FAILURES:
        return None
    since = reports(str(job["metadata"].get("uid"))).epoch_ended_at or 0.0
    failed: defaultdict[int, list[Json]] = defaultdict(list)
    for pod in found:
        if ended_at(pod) >= since:
            failed[pods.index(pod) or 0].append(pod)
    often = max(failed.values(), key=len, default=[])
    if len(often) < MOST_FAILURES:
        return None
    return reason(
        "workers_keep_failing", times=len(often), died=pods.failure(max(often, key=ended_at))
    )


def _cannot_start(job: Json, own: Iterable[Json]) -> Reason | None:
    """The last of several starts in vain: this one waits for an image as well."""
    starts = kept(job).failed_starts + 1
    why = next((pods.pending([pod], MOST_WORKERS) for pod in own if _waits_in_vain(pod)), "")
    if not why or starts < MOST_STARTS or not objects.width(job):
        return None
    return reason("workers_cannot_start", times=starts, why=why)


def _waits_in_vain(pod: Json) -> bool:
    if pods.phase(pod) != "Pending" or pods.leaving(pod):
        return False
    return any(
        merge.dig(one, "state", "waiting", "reason") in NOT_STARTABLE
        for field in ("initContainerStatuses", "containerStatuses")
        for one in merge.items(pod, "status", field)
    )
