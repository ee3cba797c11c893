"""A training whose result is in is complete, also where its pods do not end.

A worker that is told to stop while it closes, or is killed then, does not end with exit 0: its Job
would start once more for nothing. So a suspended Job whose training has returned is completed.

A second container (a proxy, a log shipper) keeps a pod running after its training has ended. Such a
Job is completed after its pods' grace, or, where nobody knows a result, told what keeps it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from laxity import json_tree, names
from laxity.human_time import format_seconds
from laxity.parsing import whole_number
from laxity_k8s.act.adoption import SUCCESS, TARGET, Tending, patch_of, success_patch
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs, pods
from laxity_k8s.objects.conditions import read_condition
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import FOREVER

RESULT_IS_IN = "its result is in: complete, though it was stopped before its workers had left"
GRACE_S: Final = 30  # Kubernetes' default
ADVICE: Final = "make it an init container with restartPolicy: Always, which ends with the training"


@dataclass(slots=True)
class KeptPods:
    """A Job's training has ended since then, and its pods have not."""

    uid: str
    since: float
    is_told: bool = False


class Finisher:
    """Finds what completes a Job. `look_again` is asked for a Job whose grace is over."""

    def __init__(self, look_again: Callable[[str], None]) -> None:
        self._look_again = look_again
        self._ended: dict[str, KeptPods] = {}
        self._due: dict[str, float] = {}

    @property
    def due_at(self) -> float:
        return min(self._due.values(), default=FOREVER)

    def wake_due(self, now: float) -> None:
        for job_id in [job_id for job_id, due_at in self._due.items() if due_at <= now]:
            self._due.pop(job_id)
            self._look_again(job_id)

    def find(self, job: Json, report: Report, own: Sequence[Json], *, now: float) -> Tending | None:
        """What completes the Job, or tells it what keeps its pods; None where neither is due."""
        job_id, uid = json_tree.object_id(job), str(job["metadata"].get("uid"))
        leaves = (
            not jobs.is_live(job) or _is_ending(job) or names.PIN in json_tree.annotations_of(job)
        )
        words = "" if leaves else describe_keepers(job, own)
        if not words:
            self._ended.pop(job_id, None)
            self._due.pop(job_id, None)
            return find_completion(job, report, now=now)
        ended, grace_s = self._ended.get(job_id), _grace_s(job)
        if ended is None or ended.uid != uid:
            ended = self._ended[job_id] = KeptPods(uid, now)
        if now < ended.since + grace_s:
            self._due[job_id] = ended.since + grace_s
            return None
        still = f"{words} {format_seconds(grace_s)} later"
        if report.finished and _is_indexed(job):
            message = f"its result is in: complete, though {still}"
            return Tending(success_patch(job, message, now=now), "result_is_in", message)
        if ended.is_told:
            return None
        ended.is_told = True
        message = f"{still}: its pods do not end; {ADVICE}"
        body = {"metadata": {"annotations": {names.REASON: message}}}
        return Tending(patch_of(job, body), "container_keeps_pod", message)


def find_completion(job: Json, report: Report, *, now: float) -> Tending | None:
    """What completes a suspended Job; None where it runs on, or has no result yet."""
    if not (report.finished and jobs.is_live(job)) or jobs.current_width(job):
        return None
    if not _is_indexed(job) or _is_ending(job):
        return None
    return Tending(success_patch(job, RESULT_IS_IN, now=now), "result_is_in", RESULT_IS_IN)


def describe_keepers(job: Json, own: Sequence[Json]) -> str:
    """Which containers still run though the training's have ended; "" where a training runs on."""
    template = json_tree.mapping_at(job, "spec", "template", "spec")
    trains = str(json_tree.get_in(template, "containers", 0, "name"))
    may_restart = template.get("restartPolicy") == "OnFailure"
    codes: list[int] = []
    keepers: set[str] = set()
    live = [pod for pod in own if not pods.is_finished(pod) and not pods.is_terminating(pod)]
    for pod in live:
        states = {
            str(status.get("name")): json_tree.mapping_at(status, "state")
            for status in json_tree.list_at(pod, "status", "containerStatuses")
        }
        code = whole_number(json_tree.get_in(states.pop(trains, {}), "terminated", "exitCode"))
        if code is None or (code and may_restart):
            return ""
        codes.append(code)
        keepers |= {name for name, state in states.items() if "running" in state}
    if not keepers:
        return ""
    runs = f"container {', '.join(sorted(keepers))} still ran"
    return f"{trains} ended with exit code {max(codes)}, and {runs}"


def _grace_s(job: Json) -> int:
    seconds = json_tree.get_in(job, "spec", "template", "spec", "terminationGracePeriodSeconds")
    grace_s = whole_number(seconds)
    return GRACE_S if grace_s is None else grace_s


def _is_indexed(job: Json) -> bool:
    """Kubernetes lets only such Jobs be completed."""
    return bool(json_tree.get_in(job, "spec", "completionMode") == "Indexed")


def _is_ending(job: Json) -> bool:
    return "True" in (read_condition(job, SUCCESS), read_condition(job, TARGET))
