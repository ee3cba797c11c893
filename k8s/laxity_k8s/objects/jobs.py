"""Jobs, Pods and Nodes as JSON become rows of the snapshot. Pure: what it cannot read, it names.

One Job that makes no sense must not keep all others from being decided on, so a wrong annotation
becomes a `BadJob` with its problems, never an exception.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import Any

from laxity import json_tree, names
from laxity.human_time import count_noun
from laxity.instants import instant_at
from laxity.job import manifest_reader
from laxity.job.accelerators import GPU
from laxity.job.qos import QoS, QoSError
from laxity.job.spec import TrainingSpec
from laxity.job.submission import counts_from, queue_instant
from laxity.job.widths import MOST_WORKERS, WIDEST_UNNAMED, widths_within
from laxity.parsing import finite_number, whole_number
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.attempts import epochs_done
from laxity_k8s.objects.conditions import is_finished, read_condition
from laxity_k8s.objects.controller_seen import is_observed, may_come
from laxity_k8s.objects.kept_state import holds_state, parked_epoch, read_kept_state
from laxity_k8s.objects.node_rows.accelerator_nodes import site_name
from laxity_k8s.objects.node_rows.nodes import read_assigned_nodes
from laxity_k8s.objects.spec_cache import read_spec
from laxity_k8s.objects.start_limit import start_limit_s
from laxity_k8s.objects.status_annotation import (
    digest_terms,
    parse_mapping,
    read_status,
    read_verdict,
)
from laxity_profiler.estimate import Progress, Workload
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import FOREVER, Job, Refusal
from laxity_scheduler.model.reasons import Reason, reason

NO_REPORT = Report()
NOBODY: Mapping[int, str] = MappingProxyType({})
NO_GPU = (
    "no container asks for a GPU, and laxity plans GPUs alone: add resources with "
    f"limits of {GPU} (or another accelerator), or take label {names.MANAGED} off"
)
CLAIMS = (
    "its pods ask for devices by resource claims ({claims}), which laxity does not count: ask by "
    f"limits of {GPU} (or another accelerator), or take label {names.MANAGED} off"
)


@dataclass(frozen=True, slots=True)
class BadJob:
    """A labelled Job that cannot be decided on, and what is wrong with it, field by field.

    It is `put_off` if it keeps the verdict that it has: the API server has refused what was decided,
    or its user has changed what it declares to nonsense. `why` is the reason where it is no problem
    of the Job itself.
    """

    id: str
    problems: tuple[str, ...]
    put_off: bool = False
    why: Reason | None = None

    @property
    def refusal(self) -> Refusal:
        """The verdict that the Job is given."""
        return Refusal(self.why or reason("invalid", problem="; ".join(self.problems)[:1000]))


def is_managed(job: Json) -> bool:
    """Ours: laxity's label, and not Kueue's."""
    labels = json_tree.labels_of(job)
    return labels.get(names.MANAGED) == "true" and names.KUEUE_QUEUE not in labels


def is_being_deleted(job: Json) -> bool:
    return bool(json_tree.get_in(job, "metadata", "deletionTimestamp"))


def is_live(job: Json) -> bool:
    """Ours, neither finished nor being deleted."""
    return is_managed(job) and not is_being_deleted(job) and not is_finished(job)


def job_row(
    job: Json,
    own: Sequence[Json] = (),
    report: Report = NO_REPORT,
    *,
    largest: int = WIDEST_UNNAMED,
    due_at: float = FOREVER,
    displaced: Mapping[int, str] = NOBODY,
    now: float = 0.0,
    eligible: str = "",
    spec: TrainingSpec | None = None,
) -> Job | BadJob:
    """A Job with its pods and its workers' report as a row; `largest` is the cluster in workers.

    `spec` is what it declares, if that was read before. `eligible` names the set of nodes that its
    pods may go to. `due_at` is when all of them should run; those of `displaced` workers are not
    waited for.

    `now` only tells whether pods have had their time to run; no field moves with it otherwise.
    """
    try:
        spec = spec or spec_of(job)
    except QoSError as error:
        return bad_job(job, error)
    had_time = due_at <= now or bool(displaced)
    return build_row(
        job, spec, own, report,
        largest=largest, had_time=had_time, displaced=displaced, now=now, eligible=eligible,
    )  # fmt: skip


def bad_job(job: Json, error: QoSError) -> BadJob:
    problems = tuple(f"{where}: {what}" for where, what in error.problems)
    return BadJob(json_tree.object_id(job), problems)


def start_instant(job: Json) -> float:
    """When it was last started or resized."""
    state = read_status(job)
    return max(state.resumed_at or 0.0, state.width_changed_at or 0.0)


def spec_of(job: Json) -> TrainingSpec:
    """What its user declared. QoSError names every wrong field."""
    asks = pods.accelerators_of(json_tree.mapping_at(job, "spec", "template"))
    try:
        spec = read_spec(job)
    except QoSError as error:
        problems = error.problems
        if asks or any(where == "resources" for where, _ in problems):
            raise
        raise QoSError(*problems[0], *problems[1:], ("resources", _no_gpu(job))) from None
    if not asks:
        raise QoSError("resources", _no_gpu(job))
    return spec


def _no_gpu(job: Json) -> str:
    """Why nothing is counted for this Job: it asks for none, or by claims."""
    claims = json_tree.list_at(job, "spec", "template", "spec", "resourceClaims")
    named = ", ".join(sorted(str(json_tree.get_in(claim, "name")) for claim in claims))
    return CLAIMS.format(claims=named[:200]) if claims else NO_GPU


def build_row(
    job: Json,
    spec: TrainingSpec,
    own: Sequence[Json] = (),
    report: Report = NO_REPORT,
    *,
    largest: int,
    had_time: bool = False,
    displaced: Mapping[int, str] = NOBODY,
    now: float,
    eligible: str,
) -> Job:
    """The row of a Job that declares `spec`; other arguments as in `job_row`."""
    state, annotations = read_status(job), json_tree.annotations_of(job)
    submitted_at, claimed_at = submission_instant(job, spec), submission_claim(spec)
    workers, gpus, told_verdict = current_width(job), spec.qos.gpus_per_worker, read_verdict(job)
    heard = workers > 0 and (report.since >= (state.resumed_at or 0.0) or report.formed > 0)
    stop, limit_s = parse_mapping(annotations.get(names.STOP)), start_limit_s(job, spec)
    since = max(state.since, min(report.since, now) if heard else 0.0, submitted_at)
    return Job(
        id=spec.id,
        workload=intern_workload(report.refine(Workload.of(spec))),
        submitted_at=submitted_at,
        deadline_at=spec.qos.deadline_at(counts_from(claimed_at, creation_instant(job))),
        service_class=spec.qos.service_class,
        widths=find_allowed_widths(spec.qos, job, largest),
        gpus_per_worker=gpus,
        workers=workers,
        nodes=find_places(job, own, workers),
        terminating_workers=count_leaving(job, own, workers),
        progress=_read_progress(job, own, report),
        since=since,
        attained_gpu_s=state.gpu_s_until(since, workers * gpus, submitted_at),
        preemptible=spec.qos.preemptible and (holds_state(job, report) or not spec.resumes),
        preemptions=state.preemptions,
        verdict=told_verdict,
        queued_at=submitted_at if state.queued_at is None else state.queued_at,
        resumed_at=state.resumed_at,
        width_changed_at=state.width_changed_at,
        epoch_started_at=report.epoch_started_at if heard else None,
        stop_requested_at=finite_number(stop.get("at")) if workers else None,
        stop_for=str(stop.get("for") or "") if workers else "",
        formed=report.formed if heard else 0,
        resize_to=(whole_number(annotations.get(names.RESIZE_TO)) or 0) if workers else 0,
        parked_epoch=parked_epoch(spec, report, is_heard=heard) if workers and stop else None,
        pinned=names.PIN in annotations or by_hand(job) != "",
        on_miss=spec.qos.on_miss,
        wall_limit_s=FOREVER if spec.plain else limit_s,
        active_deadline_s=limit_s if spec.plain else FOREVER,
        asked=told_verdict is None or state.terms != digest_terms(job),
        failed_starts=state.failed_starts,
        not_before=state.not_before,
        start_seen=is_observed(job) if workers else True,
        eligible=eligible,
        **read_kept_state(job, spec, report),
        **_read_group(spec),
        restarted_at=_restart_instant(report, state.resumed_at or 0.0) if heard else None,
        reports=report.since > 0.0 or not (workers and pods.leader_runs(own)),
        **_read_troubles(job, own, displaced, now=now, had_time=had_time),
    )


def _read_group(spec: TrainingSpec) -> dict[str, Any]:
    """Of which group it is, as which step; one that names no step is a step of its own."""
    step = (spec.step or spec.name) if spec.group else ""
    return {"group": spec.group or "", "step": step, "after": spec.after}


def _restart_instant(report: Report, resumed_at: float) -> float | None:
    """When workers began anew that had said something since the last start by a decision."""
    said_before = report.silent_since is not None and report.silent_since > resumed_at
    return report.started_at if said_before and not report.formed else None


def _read_troubles(
    job: Json, own: Sequence[Json], displaced: Mapping[int, str], *, now: float, had_time: bool
) -> dict[str, Any]:
    """What is wrong with its pods, by the row's fields."""
    workers, overdue = current_width(job), pods.describe_overdue(own, now)
    troubles: dict[str, Any] = {"cannot_end": overdue}
    if workers:
        troubles["died"] = pods.failure_reason(own, workers)
        # no pod takes the place of one that cannot end
        troubles["pending"] = overdue or pods.pending_reason(own, workers, had_time=had_time)
    if displaced:
        troubles["displaced"] = displaced[min(displaced)]
    if workers and had_time:
        troubles["fitting_workers"] = count_fitting(job, own, displaced, now=now)
    return troubles


def _read_progress(job: Json, own: Sequence[Json], report: Report) -> Progress:
    """How far it is. Of one that holds no state only what its present worker 0 has trained counts."""
    is_held = holds_state(job, report)
    began_at = pods.leader_began_at(own) if current_width(job) and not is_held else FOREVER
    done = epochs_done(job, report) if is_held or report.since >= began_at else 0
    progress = report.progress
    return progress if done == progress.epochs_done else replace(progress, epochs_done=done)


def submission_instant(job: Json, spec: TrainingSpec) -> float:
    """When the Job took its place in the queue."""
    return queue_instant(submission_claim(spec), creation_instant(job))


def submission_claim(spec: TrainingSpec) -> float | None:
    """The instant of submission that its annotation names."""
    return None if spec.submitted_at is None else spec.submitted_at.timestamp()


def creation_instant(job: Json) -> float:
    return instant_at(json_tree.get_in(job, "metadata", "creationTimestamp")) or 0.0


def find_allowed_widths(qos: QoS, job: Json, largest: int) -> tuple[int, ...]:
    """What the user allows and the cluster holds; without a word, powers of two up to that.

    A width that runs is among them also where the cluster has become smaller.
    """
    if qos.widths is not None:
        return widths_within(qos.widths, max(largest, current_width(job)))
    most = max(1, min(WIDEST_UNNAMED, largest))
    return tuple(level for level in (1, 2, 4, 8) if level <= most)


def current_width(job: Json) -> int:
    """Workers that should run now: 0 while suspended, never more than a job may have."""
    if json_tree.get_in(job, "spec", "suspend"):
        return 0
    return min(pods.count_of(json_tree.get_in(job, "spec", "parallelism")), MOST_WORKERS)


def by_hand(job: Json) -> str:
    """How the Job differs from what laxity asked for last, in words; "" if it does not."""
    wanted, workers = read_status(job).wanted, current_width(job)
    if wanted is None:
        # Suspended once and running without our word: somebody let it go.
        by_hand = workers and read_condition(job, "Suspended")
        return f"started by hand on {workers}" if by_hand else ""
    if wanted == workers:
        return ""
    return f"changed by hand from {wanted} to {count_noun(workers, 'worker')}"


def is_unadopted(job: Json) -> bool:
    """New, running, and never suspended: no admission policy has seen it yet."""
    was_never_suspended = read_status(job).wanted is None and not read_condition(job, "Suspended")
    return current_width(job) > 0 and was_never_suspended


def find_places(job: Json, own: Iterable[Json], workers: int) -> tuple[str, ...]:
    """The site of each worker index: where its pod is, else where it was sent.

    Empty if that is not known of all of them: somebody else has started some.
    """
    bound = {
        index: pods.node_of(pod)
        for index, pod in pods_by_number(job, own)
        if not pods.is_finished(pod) and not pods.is_terminating(pod) and pods.node_of(pod)
    }
    sent = read_assigned_nodes(job)
    sites = [
        bound.get(index) or (sent[index] if index < len(sent) else "") for index in range(workers)
    ]
    resource = pods.resource_of(json_tree.mapping_at(job, "spec", "template"))
    return tuple([site_name(name, resource) for name in sites]) if all(sites) else ()


def is_elastic(job: Json) -> bool:
    """Whether it may be resized: each of its pods is one worker of a training."""
    return manifest_reader.is_elastic(json_tree.mapping_at(job, "spec"))


def pods_by_number(job: Json, own: Iterable[Json]) -> list[tuple[int, Json]]:
    """Pods with the number of the worker that each is.

    That is the index in an elastic Job. In any other, pods come and go as items are done: those that
    are there are counted by name.
    """
    elastic = is_elastic(job)
    next_number = count()
    return [
        (next(next_number) if index is None else index, pod)
        for pod in sorted(own, key=json_tree.object_id)
        for index in (pods.index_of(pod) if elastic else None,)
        if index is not None or not pods.is_finished(pod)
    ]


def count_leaving(job: Json, own: Iterable[Json], workers: int) -> int:
    """Workers that hold GPUs and should not: on their way out, or about to be told."""
    ended_count = sum(
        pods.is_terminating(pod) or index >= workers
        for index, pod in pods_by_number(job, own)
        if not pods.is_finished(pod)
    )
    status = json_tree.mapping_at(job, "status")
    counted = pods.count_of(status.get("active")) + pods.count_of(status.get("terminating"))
    return max(ended_count, counted - workers, may_come(job))


def count_fitting(
    job: Json, own: Iterable[Json], displaced: Container[int] = (), *, now: float = 0.0
) -> int | None:
    """Workers that run and stay, in an elastic Job indexes from 0 up; None if all that should do.

    One that should have ended by now does not stay.
    """
    due = due_workers(job)
    running = {
        index
        for index, pod in pods_by_number(job, own)
        if pods.phase_of(pod) in {"Running", "Succeeded"} and index not in displaced
        if not pods.is_overdue(pod, now)
    }
    fits = next((index for index in range(due) if index not in running), due)
    return None if fits == due else fits


def due_workers(job: Json) -> int:
    """Pods that the job controller keeps running now, or that have succeeded in an elastic Job.

    Fewer than its width when the last items of a Job are being done.
    """
    wide = current_width(job)
    completions = json_tree.get_in(job, "spec", "completions")
    status = json_tree.mapping_at(job, "status")
    succeeded = pods.count_of(status.get("succeeded"))
    if is_elastic(job) or not succeeded:
        return wide
    if completions is None:  # a work queue: after the first success no pod is made any more
        return min(wide, pods.count_of(status.get("active")))
    return min(wide, max(0, pods.count_of(completions) - succeeded))


@lru_cache(maxsize=4096)
def intern_workload(workload: Workload) -> Workload:
    """Equal workloads are one object: predictors compare them often."""
    return workload
