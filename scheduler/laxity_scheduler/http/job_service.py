"""What people may change about jobs on a running service, in plain values; HTTP is elsewhere.

A change is made on the Job, which is the truth, and the loop is woken. The answer is what the next
cycle makes of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from threading import Lock
from typing import Any, Final

import orjson

from laxity import json_tree, names
from laxity.clock_time import ClockTime
from laxity.durations import deadline_instant, parse_zoned_deadline
from laxity.human_time import count_noun
from laxity.instants import instant_at
from laxity.job.spec import TrainingSpec
from laxity.job.submission import counts_from
from laxity_profiler.history.history import History
from laxity_scheduler.http.job_views import JobViews
from laxity_scheduler.http.responses import Problem
from laxity_scheduler.http.whatif import WhatIf, decide_whatif, whatif_view, with_deadline
from laxity_scheduler.http.worker_calls import ConflictError, WorkerCalls
from laxity_scheduler.live import Released, UnknownJobError
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job, Promise, Refusal
from laxity_scheduler.model.reasons import format_duration
from laxity_scheduler.plan import Plan
from laxity_scheduler.service.expected_times import prediction_note
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.offers import annotations_for, format_instant_ms, probe_manifest
from laxity_scheduler.service.views.manifest_view import declaration_of, project_view
from laxity_scheduler.service.views.verdict_view import verdict_view
from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json, job_id_of
from laxity_scheduler.service_clock import CLOCK
from laxity_scheduler.store.audit_rows import STANDS, refused_amendment

OFFERS_WITHOUT_DEADLINE: Final = {"probe", "soft"}
POLICY_FAILS: Final = (
    "no verdict can be given now, and nothing was changed: the policy fails on this job or beside it; "
    "the service's log says why, and /readyz whether its cycles fail as well"
)
# Pending requests to the workers are withdrawn: they would wait for the pods to go.
PIN_ANNOTATIONS: Final[Mapping[str, str | None]] = {
    names.PIN: "released by its user", names.STOP: None, names.RESIZE_TO: None,
}  # fmt: skip
UNPIN_ANNOTATIONS: Final[Mapping[str, str | None]] = {names.PIN: None}


class JobService:
    """One service as people and workers use it: `views` reads, `workers` takes workers' calls."""

    def __init__(self, service: Service, reports: History) -> None:
        self.views = JobViews(service)
        self.workers = WorkerCalls(service, self.views, reports)
        self._service = service
        self._world = service.world
        self._one_at_a_time = Lock()

    def submit_job(self, manifest: Mapping[str, Any]) -> tuple[Json, bool]:
        """The view of the new Job, or of the one that its key attaches to; and whether it is new.

        A refused Job asks again with what is declared now, so its view says nothing of attaching.
        ConflictError for a flow that says one_at_a_time while another job of it waits or runs.
        """
        spec = TrainingSpec.from_manifest(manifest)
        if not spec.one_at_a_time:
            return self._submit(manifest)
        with self._one_at_a_time:
            self._check_no_other(spec)
            return self._submit(manifest)

    def _submit(self, manifest: Mapping[str, Any]) -> tuple[Json, bool]:
        job = self._world.submit(manifest, self._cancelled_attempts(manifest))
        before = self._service.view_cache.view_by_uid(json_tree.uid_of(job))
        if before is not None and before["state"] not in TERMINAL_STATES:
            job = self._update_follower(job, manifest)
        attached = before is not None and before["state"] != "refused"
        view = self.views.first_view(job) | {"attached": attached, "project": project_view(job)}
        self._world.wake()
        return view, before is None

    def _check_no_other(self, spec: TrainingSpec) -> None:
        """ConflictError if a job of the same function and model, with another key, waits or runs."""
        for view in self._service.view_cache.views_in_any_order():
            is_over = view["state"] in TERMINAL_STATES or view["state"] == "refused"
            is_alike = view["model"] == spec.model and not is_over
            namespace = view["id"].partition("/")[0]
            if not is_alike or namespace != spec.namespace:
                continue
            if view["idempotency_key"] == spec.idempotency_key or not self._trains(view, spec):
                continue
            raise ConflictError(
                f"{view['id']} of the same flow has not ended ({view['state']}, {view['epochs_done']} "
                f"of {view['epochs']} epochs), and one_at_a_time is declared: wait for it, cancel it, "
                f"or submit with its key to attach to it"
            )

    def _trains(self, view: Json, spec: TrainingSpec) -> bool:
        """Whether the job of this view trains the function of this spec, wherever its file lies."""
        try:
            annotations = json_tree.annotations_of(self._world.job(view["id"]))
        except UnknownJobError:
            return False
        entries = (annotations.get(names.ENTRY), spec.entry)
        return len({str(entry).rpartition(":")[2] for entry in entries}) == 1

    def _update_follower(self, job: Json, manifest: Mapping[str, Any]) -> Json:
        """Name the flow run that follows the Job now: the earlier one may have been killed."""
        page = json_tree.annotations_of(manifest).get(names.FOLLOWED_BY)
        if not page or page == json_tree.annotations_of(job).get(names.FOLLOWED_BY):
            return job
        return self._world.annotate(job_id_of(job), {names.FOLLOWED_BY: page})

    def cancel_job(self, job_id: str) -> Json:
        """Delete the Job; one that has ended stays as it is."""
        view = self.views.view_of(job_id)
        if view["state"] not in TERMINAL_STATES:
            job = self._world.job(job_id)
            if names.IDEMPOTENCY_KEY in json_tree.annotations_of(job):
                kept = declaration_of(job)
                self._service.view_cache.remember_fields(view["uid"], cancelled=kept)
            self._world.cancel(job_id)
            self._world.wake()
        return view

    def _cancelled_attempts(self, manifest: Mapping[str, Any]) -> list[Json]:
        """Jobs of its key that were cancelled, as they were declared."""
        key = json_tree.annotations_of(manifest).get(names.IDEMPOTENCY_KEY)
        namespace = job_id_of(manifest).partition("/")[0]
        return self._service.view_cache.cancelled_attempts(namespace, key) if key else []

    def amend_deadline(self, job_id: str, deadline: str) -> Json | None:
        """Ask for another deadline. None: the Job now asks, and the next cycles answer.

        If it would be refused while a promise stands, nothing is changed, and `explain` says that it was
        asked for; returns that refusal's view.
        """
        row = self._row_to_change(job_id)
        due = parse_zoned_deadline(deadline)
        base_at = CLOCK.now() if isinstance(due, ClockTime) else self._deadline_base_at(row)
        due_at = deadline_instant(due, base_at)
        answer = self._decide_with(with_deadline(row, due_at))
        if isinstance(row.verdict, Promise) and isinstance(answer.verdict, Refusal):
            state, _ = self._service.last_snapshot
            self._service.add_answer(refused_amendment(state, job_id, due_at, answer.verdict))
            refused = self.views.view_of(job_id) | verdict_view(answer.verdict)
            return refused | {"reason": f"{refused['reason']}; {STANDS}", "amended": False}
        changes = {names.DEADLINE: format_instant_ms(due_at)}
        if row.service_class == "best_effort":
            changes[names.CLASS] = "hard"
        self._change_terms(job_id, changes)
        return None

    def accept_offer(self, job_id: str, number: int) -> None:
        """Take counter-offer `number` (from 1) of a refused job: the job asks again with those terms."""
        row = self._row_to_change(job_id)
        offers = row.verdict.offers if isinstance(row.verdict, Refusal) else ()
        if not offers:
            raise ConflictError(f"{job_id} has no counter-offers: it was not refused")
        if not 1 <= number <= len(offers):
            raise ConflictError(f"{job_id} has offers 1 to {len(offers)}, not {number}")
        offer = offers[number - 1]
        if offer.kind not in OFFERS_WITHOUT_DEADLINE and offer.deadline_at <= CLOCK.now():
            ago = format_duration(CLOCK.now() - offer.deadline_at)
            raise ConflictError(
                f"offer {number} of {job_id} expired {ago} ago: ask again with "
                f"laxity amend {job_id} --deadline ..."
            )
        if offer.kind == "probe":
            self._submit_probe(job_id)
        elif offer.kind == "borrow":
            raise ConflictError(
                f"offer {number} needs {count_noun(offer.gpus_borrowed, 'more GPU')} in the cluster: "
                "add them, then ask again with: laxity amend"
            )
        else:
            self._change_terms(job_id, annotations_for(offer))

    def answer_whatif(self, manifest: Mapping[str, Any]) -> Json:
        """The verdict on a manifest and its effects on other jobs; nothing is submitted."""
        state, predictor = self._service.last_snapshot
        state = replace(state, now=max(state.now, CLOCK.now()))
        row, nodes, refusal = self._world.preview(manifest, state.now)
        if refusal is not None:
            return whatif_view(WhatIf(refusal, Plan(), Plan()), state, row)
        if row.eligible:
            state = replace(state, sets={**(state.sets or {}), row.eligible: nodes})
        if row.id in state.by_id:
            row = replace(row, id=f"{row.id}-whatif")
        note = prediction_note(predictor, row.workload)
        return whatif_view(self._decide_with(row, state), state, row) | {"prediction_note": note}

    def pin_job(self, job_id: str) -> None:
        """Leave this running job alone from now on; its GPUs stay counted."""
        row = self._row_to_change(job_id)
        if not row.workers:
            state = self.views.view_of(job_id)["state"]
            message = f"{job_id} is {state}: only a running job is released; cancel ends this one"
            raise ConflictError(message)
        self._annotate_job(job_id, PIN_ANNOTATIONS)

    def unpin_job(self, job_id: str) -> None:
        """Manage this job again."""
        if not self._row_to_change(job_id).pinned:
            raise ConflictError(f"{job_id} is not pinned: it is looked after as it is")
        self._annotate_job(job_id, UNPIN_ANNOTATIONS)

    def release_all(self) -> Released:
        """Drop label and annotations of all Jobs; laxity manages none of these any more."""
        cache = self._service.view_cache
        for view in cache.all():
            if view["state"] not in TERMINAL_STATES:
                cache.remember_fields(view["uid"], released=True)
        released = self._world.release()
        for job_id in released.refused:
            if shown := cache.view(job_id):  # None before a cycle has seen it
                cache.remember_fields(shown["uid"], released=None)
        self._world.wake()
        return released

    def _row_to_change(self, job_id: str) -> Job:
        state, _ = self._service.last_snapshot
        row = state.by_id.get(job_id)
        if row is None:
            view = self.views.view_of(job_id)
            raise ConflictError(f"{job_id} has ended ({view['state']}): submit it again")
        return row

    def _deadline_base_at(self, row: Job) -> float:
        """The instant from which a deadline of this job counts that is a duration."""
        annotations = json_tree.annotations_of(self._world.job(row.id))
        return counts_from(instant_at(annotations.get(names.SUBMITTED_AT)), row.submitted_at)

    def _decide_with(self, row: Job, state: ClusterState | None = None) -> WhatIf:
        """What would be decided; Problem if the policy fails: its own error may name anybody's Job."""
        last_state, predictor = self._service.last_snapshot
        try:
            with self._service.deciding:
                return decide_whatif(
                    state or last_state, row, predictor, self._service.policies.decide
                )
        except Exception as error:
            self._service.metrics.faults.record_fault("what-if", row.id, error)
            raise Problem(503, "policy_fails", POLICY_FAILS) from error

    def _change_terms(self, job_id: str, changes: Mapping[str, str | None]) -> None:
        """Change terms, and keep those of the first submission: the idempotency key is checked by them."""
        job = self._world.job(job_id)
        annotations = json_tree.annotations_of(job)
        if names.ONE_AT_A_TIME in annotations:  # a refused job may come to run beside a later one
            self._check_no_other(TrainingSpec.from_manifest(job))
        first = {
            name: annotations.get(name) for name in (names.DEADLINE, names.CLASS, names.WIDTHS)
        }
        first_terms = annotations.get(names.FIRST_TERMS) or orjson.dumps(first).decode()
        self._annotate_job(job_id, {**changes, names.FIRST_TERMS: first_terms})

    def _annotate_job(self, job_id: str, annotations: Mapping[str, str | None]) -> None:
        self._world.annotate(job_id, annotations)
        self._world.wake()

    def _submit_probe(self, job_id: str) -> None:
        """Submit two epochs as best effort under another name; afterwards the job asks again."""
        job = self._world.job(job_id)
        self._world.submit(probe_manifest(job, TrainingSpec.from_manifest(job)))
        self._world.wake()
