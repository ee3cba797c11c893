"""When a training has failed: the one rule for exceptions, exit codes and signals alike.

A worker that fails starts again, from the last checkpoint. The training has failed when no start
can help (its exit code says so), when the same exception comes twice in one epoch, or when its
`restarts` in a row have not finished an epoch: going on would hold GPUs and a promise for nothing.
docs/projects.md has the rule for users.

Exit codes say that only where the container runs laxity's worker: another program may mean
anything by them. A plain Job with such a program keeps the backoffLimit that its user gave it: its reason
shows the error. In trainings `restarts` alone says how many failures in a row are worth GPUs: backoffLimit
counts all pods of the Job's life, lost nodes too, and is large for that reason.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from laxity import json_tree, names
from laxity.job.manifest_reader import runs_worker
from laxity.job.qos import QoSError
from laxity.job.spec import MOST_RESTARTS
from laxity.job.widths import MOST_WORKERS
from laxity.job.worker_exits import EXIT_RAISED, FINAL_CODES
from laxity_k8s.act.adoption import TARGET, Tending, failure_patch, patch_of
from laxity_k8s.act.event_writer import camel_case
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs, pods
from laxity_k8s.objects.conditions import read_condition
from laxity_k8s.objects.containers import count_restarts, end_instant
from laxity_k8s.objects.start_limit import start_limit_s
from laxity_k8s.objects.status_annotation import read_status
from laxity_scheduler.live import Report, Reports
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import Reason, reason

MOST_CUT_LINKS: Final = 2  # of a chain, with no epoch in between
MOST_STARTS: Final = 3  # in vain, since what the pods need to start is not there
NOT_STARTABLE: Final = frozenset(
    {
        "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull",
        "ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RunContainerError",
    }
)  # fmt: skip
# In the words of the kubelet, the scheduler and the API server. A volume that is there and cannot be
# attached yet may be free a few minutes later.
NOT_THERE: Final = re.compile(
    r'\b(?:configmap|secret|persistentvolumeclaim|serviceaccount) "[^"]*" not found'
    r"|\breferences non-existent (?:config|secret) key\b"
)


def find_failure(
    job: Json, own: Sequence[Json], reports: Reports, *, now: float, hangs_on: str = ""
) -> Tending | None:
    """What fails the Job, or only tells it why its pods keep failing.

    None as long as another start may help, and where all of it is said. `hangs_on`: what keeps its
    start, where Events alone say so.
    """
    if not _is_ours(job):
        return None
    trains = _is_training(job)
    cause = _keep_failing(job, own, reports, trains=trains)
    if cause is None and trains:
        cause = _cannot_start(job, own, hangs_on) or _links_in_vain(job)
    if cause is None or not (trains or _is_to_be_told(job, cause)):
        return None
    if trains:
        return Tending(
            failure_patch(job, camel_case(cause.code), cause.text, now=now), cause.code, cause.text
        )
    body: Json = {"metadata": {"annotations": {names.REASON: cause.text}}}
    return Tending(patch_of(job, body), cause.code, cause.text)


def _is_ours(job: Json) -> bool:
    """Whether nobody else has its end in hand, and it is not about to fail already."""
    is_ending = read_condition(job, TARGET) == "True"
    return jobs.is_live(job) and not is_ending and names.PIN not in json_tree.annotations_of(job)


def _is_training(job: Json) -> bool:
    """A training of laxity, whatever kind of Job it is. Any other Job counts its failures itself."""
    try:
        if not jobs.spec_of(job).plain:
            return True
    except QoSError:
        return False
    if json_tree.get_in(job, "spec", "backoffLimitPerIndex") is not None:
        return False
    return runs_worker(json_tree.mapping_at(job, "spec"))


def _is_to_be_told(job: Json, why: Reason) -> bool:
    """Only while it runs: of one that waits, what it waits for is the reason."""
    notes = json_tree.annotations_of(job)
    return bool(jobs.current_width(job)) and notes.get(names.REASON) != why.text


def _keep_failing(
    job: Json, own: Sequence[Json], reports: Reports, *, trains: bool
) -> Reason | None:
    # That its node has turned a pod away says nothing of it: another node may take the next one.
    failures = [pod for pod in own if pods.has_failed(pod) and not pods.was_turned_away(pod)]
    if not failures:
        return None
    report = reports(str(job["metadata"].get("uid")))
    since = _last_epoch_at(report)
    often = max(_in_a_row(job, own, failures, since), key=len, default=[])
    if not often:
        return None
    died = pods.worker_failure(max(often, key=end_instant))
    by_code = trains and runs_worker(json_tree.mapping_at(job, "spec"))
    if by_code and _is_final(job, often):
        return reason("worker_failed", died=died)
    times = sum(_count_failures(pod, since) for pod in often)
    if times <= _allowed_restarts(job):
        return reason("worker_failed_again", died=died) if by_code and _is_repeated(often) else None
    if trains and report.holds_state is False:
        facts = {"times": times, "epoch": report.furthest_epoch}
        return reason("workers_fail_anew", **facts, died=died)
    code = "workers_keep_failing" if trains else "pods_keep_failing"
    return reason(code, times=times, died=died)


def _last_epoch_at(report: Report) -> float:
    """Since when failures are in a row.

    An epoch that was trained before is none: a job that holds no state would go on for ever.
    """
    ended_at = report.advanced_at if report.holds_state is False else report.epoch_ended_at
    return ended_at or 0.0


def _count_failures(pod: Json, since: float) -> int:
    """How often this pod failed: before each restart too, unless an epoch ended between them."""
    return 1 + (count_restarts(pod) if pods.created_at(pod) >= since else 0)


def _is_final(job: Json, failures: Iterable[Json]) -> bool:
    """Whether one says that no start helps; a Job with a podFailurePolicy is failed by that."""
    if json_tree.get_in(job, "spec", "podFailurePolicy") is not None:
        return False
    return any(pods.exit_code(pod) in FINAL_CODES for pod in failures)


def _allowed_restarts(job: Json) -> int:
    try:
        return jobs.spec_of(job).restarts
    except QoSError:
        return MOST_RESTARTS


def _is_repeated(failures: Iterable[Json]) -> bool:
    """Whether two of these have raised the same; a kill from outside says nothing of its cause."""
    raised = [pods.worker_failure(p) for p in failures if pods.exit_code(p) == EXIT_RAISED]
    return len(set(raised)) < len(raised)


def _in_a_row(
    job: Json, own: Sequence[Json], found: Sequence[Json], since: float
) -> Iterable[list[Json]]:
    """These failures by worker, since the last epoch; of pods without an index, the last of each."""
    failed: defaultdict[int | None, list[Json]] = defaultdict(list)
    for pod in found:
        if end_instant(pod) >= since:
            failed[pods.index_of(pod)].append(pod)
    if unnumbered := failed.pop(None, []):
        done = (end_instant(pod) for pod in own if pods.phase_of(pod) == "Succeeded")
        since = max(done, default=0.0)
        recent = sorted((pod for pod in unnumbered if end_instant(pod) >= since), key=end_instant)
        workers = max(1, pods.count_of(json_tree.get_in(job, "spec", "parallelism")))
        failed[None] = recent[::-workers]
    return failed.values()


def _cannot_start(job: Json, own: Iterable[Json], hangs_on: str) -> Reason | None:
    """The last of several starts in vain: this one, too, waits for an image or what its pods name."""
    starts = read_status(job).failed_starts + 1
    cause = next(
        (pods.pending_reason([pod], MOST_WORKERS) for pod in own if _waits_in_vain(pod)),
        hangs_on if NOT_THERE.search(hangs_on) else "",
    )
    if not cause or starts < MOST_STARTS or not jobs.current_width(job):
        return None
    return reason("workers_cannot_start", times=starts, why=cause)


def _links_in_vain(job: Json) -> Reason | None:
    """A chain whose links are over before an epoch is gets no further."""
    links = read_status(job).cut_links
    if links < MOST_CUT_LINKS or (limit_s := start_limit_s(job, jobs.spec_of(job))) == FOREVER:
        return None
    code = "epoch_over_wall_limit" if read_status(job).holds_state else "links_begin_anew"
    return reason(code, times=links, limit_s=limit_s)


def _waits_in_vain(pod: Json) -> bool:
    if pods.phase_of(pod) != "Pending" or pods.is_terminating(pod):
        return False
    return bool(NOT_THERE.search(pods.waits_for(pod))) or any(
        json_tree.get_in(status, "state", "waiting", "reason") in NOT_STARTABLE
        for field in ("initContainerStatuses", "containerStatuses")
        for status in json_tree.list_at(pod, "status", field)
    )
