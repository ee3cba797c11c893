"""Decisions become merge patches of Jobs: one patch per Job and plan, and nothing is sent here.

A patch states the wished-for spec and, in the same write, all that has to be known later, so that
a service killed right after it loses nothing. It names the resourceVersion that was decided on:
whoever changed the Job in between wins, and the next cycle decides anew.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Any

from laxity import json_tree, names
from laxity.instants import calendar_instant, format_rfc3339
from laxity_k8s.act.offer_annotations import describe_offers
from laxity_k8s.cluster_api import Json, Patch
from laxity_k8s.objects.jobs import is_elastic
from laxity_k8s.objects.node_rows.accelerator_nodes import machine_names
from laxity_k8s.objects.node_rows.affinity import Lean, affinity_patch, held_nodes
from laxity_k8s.objects.status_annotation import (
    JobStatusRecord,
    digest_terms,
    own_limit_s,
    read_refused_deadline,
    read_status,
    verdict_label,
    verdict_text,
)
from laxity_scheduler.link_end import CUTS, LINK_ENDS
from laxity_scheduler.model.decision import (
    Admit,
    Continue,
    Decision,
    Forecasted,
    Preempt,
    Promised,
    Refuse,
    Resize,
    Wait,
    verdict_after,
)
from laxity_scheduler.model.job import Job, Promise, Refusal, Verdict
from laxity_scheduler.model.reasons import Reason, may_be_named, reason
from laxity_scheduler.model.start_backoff import FAILED_START_CODES, backoff_s, count_failed_starts

LONGEST_REASON = 1024


class Turn(IntEnum):
    """What is sent first: GPUs are let go before they are asked for."""

    SCALE_IN = 0
    SUSPEND = 1
    START = 2
    SCALE_OUT = 3
    SAY = 4


@dataclass(frozen=True, slots=True)
class JobPatch:
    """One Job's patch; `reset_first` clears status.startTime, without which pods cannot move."""

    patch: Patch
    turn: Turn
    reset_first: bool
    reasons: tuple[tuple[str, Callable[[], str]], ...]

    @property
    def events(self) -> tuple[tuple[str, str], ...]:
        """(reason code, words) for the Job's Events, which are written later than patches are sent."""
        return tuple((code, format_text()) for code, format_text in self.reasons)


@dataclass(slots=True)
class _Draft:
    """The changes that a plan's decisions ask of one Job, gathered."""

    job: Json
    row: Job
    now: float
    notes: Mapping[str, str]  # the Job's annotations as they are
    was: JobStatusRecord
    status_fields: dict[str, Any] = field(default_factory=dict)  # what becomes of it
    annotations: dict[str, str | None] = field(default_factory=dict)
    labels: dict[str, str | None] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    turn: Turn = Turn.SAY
    reset_first: bool = False
    why: Reason | None = None  # the last word
    reasons: list[tuple[str, Callable[[], str]]] = field(default_factory=list)


def job_patch(
    job: Json,
    row: Job,
    decisions: Sequence[Decision],
    *,
    now: float,
    cycle: int = 0,
    kept_off: Collection[str] = (),
    has_fleet: bool = False,
    product: tuple[str, str] | None = None,
    token: str = "",
    repeats_wait: bool = False,
    taken: Reason | None = None,
    held_back: Promised | None = None,
) -> JobPatch | None:
    """All decisions about one Job as one patch; None if the Job says all of it already.

    `kept_off` are nodes with GPUs that are held for others; `has_fleet`: inference keeps some to itself.
    `product` is the label and value of the nodes that its workers stay on.
    `token` is what its workers show to the service. A wait that repeats the one before is the Job's
    reason again, and no Event. `taken` is the last word: GPUs that it was promised are held by others.
    `held_back` is the promise that was to be written before: no news any more, and no Event.
    """
    lean: Lean = partial(affinity_patch, kept_off=kept_off, has_fleet=has_fleet, product=product)
    draft = _Draft(job, row, now, json_tree.annotations_of(job), read_status(job))
    if held_back is not None:
        _write_decision(draft, held_back, lean, token)
        draft.reasons.clear()
    for decision in decisions:
        _write_decision(draft, decision, lean, token)
    if repeats_wait:
        draft.reasons.pop()
    if taken is not None:
        _write_reason(draft, taken)
    _write_status(draft, cycle)
    body = _build_body(draft)
    if not body:
        return None
    body["metadata"] = {
        **body.get("metadata", {}),
        "resourceVersion": job["metadata"]["resourceVersion"],
    }
    patch = Patch("jobs", json_tree.object_id(job), body)
    return JobPatch(patch, draft.turn, draft.reset_first, tuple(draft.reasons))


def _write_decision(draft: _Draft, decision: Decision, lean: Lean, token: str) -> None:
    match decision:
        case Promised() | Forecasted() | Refuse():
            _write_verdict(draft, decision)
        case Wait(reason=why):
            _write_reason(draft, why)
        case Admit():
            _write_admission(draft, decision, lean, token)
        case Resize():
            _write_width(draft, decision)
        case Preempt():
            _write_preemption(draft, decision)
        case Continue(reason=why):
            draft.annotations[names.STOP] = None
            _write_reason(draft, why)
        case _:
            pass  # Loan and Reclaim touch no Job


def _write_verdict(draft: _Draft, decision: Promised | Forecasted | Refuse) -> None:
    """The verdict, its instants, and for which terms it was given."""
    verdict: Verdict = verdict_after(draft.row, decision, draft.now)
    if isinstance(verdict, Promise):  # the Job is its namespace's to read
        verdict = replace(verdict, rests_on=_select_visible_ids(verdict.rests_on, draft.row.id))
    p90 = format_second(verdict.p90_at)
    deadline = format_instant(verdict.deadline_at) if isinstance(verdict, Promise) else None
    draft.annotations |= {
        names.VERDICT: verdict_text(verdict),
        names.PROMISED_DEADLINE: deadline,
        names.PROMISED_FINISH: _finish_when_given(draft.job, deadline, p90),
        names.P50_FINISH: format_second(getattr(verdict, "p50_at", float("inf"))),
        names.P90_FINISH: p90,
    }
    draft.labels |= {
        names.VERDICT_LABEL: verdict_label(verdict),
        names.CLASS_LABEL: draft.row.service_class,
    }
    draft.status_fields["terms"] = digest_terms(draft.job)
    if isinstance(decision, Refuse) and isinstance(verdict, Promise):
        _refuse_deadline(draft, decision)
        return
    if not (isinstance(verdict, Promise) and verdict.deadline_at != draft.row.deadline_at):
        draft.annotations[names.REFUSED_DEADLINE] = None
    _write_reason(draft, decision.reason)
    if isinstance(verdict, Refusal) and verdict.offers:
        draft.reasons.append(("offered", partial(describe_offers, verdict.offers)))


def _finish_when_given(job: Json, deadline: str | None, p90: str | None) -> str | None:
    """The P90 finish with which the promise of this deadline was given: it does not move with it."""
    annotations = json_tree.annotations_of(job)
    is_same = deadline is not None and annotations.get(names.PROMISED_DEADLINE) == deadline
    before: str | None = annotations.get(names.PROMISED_FINISH) if is_same else None
    return None if deadline is None else before or p90


def _refuse_deadline(draft: _Draft, decision: Refuse) -> None:
    """Another deadline is refused, and the promise stands: it is said once beside the promise."""
    reason_within = decision.reason.within(draft.row.id.partition("/")[0])
    deadline = format_instant(draft.row.deadline_at)
    before = read_refused_deadline(draft.job)
    if (before.get("deadline"), before.get("code")) == (deadline, reason_within.code):
        return
    refusal = {
        "deadline": deadline,
        "code": reason_within.code,
        "reason": _format_reason(reason_within),
    }
    draft.annotations[names.REFUSED_DEADLINE] = json.dumps(refusal)
    _write_reason(draft, reason_within)
    if decision.refusal.offers:
        draft.reasons.append(("offered", partial(describe_offers, decision.refusal.offers)))


def _write_admission(draft: _Draft, decision: Admit, lean: Lean, token: str) -> None:
    width, now = decision.workers, draft.now
    draft.spec |= {"suspend": False, "parallelism": width}
    _write_limit(draft)
    if is_elastic(draft.job):
        draft.spec["completions"] = width
    draft.annotations[names.NODES] = json.dumps(decision.nodes)
    draft.annotations |= {names.STOP: None, names.RESIZE_TO: None}
    template = {
        **(lean(draft.job, decision.nodes, avoided=draft.was.avoided) or {}),
        **token_patch(draft.job, token),
    }
    if template:
        draft.spec["template"] = template
        draft.reset_first = bool(json_tree.get_in(draft.job, "status", "startTime"))
    draft.status_fields |= {
        "resumed_at": now,
        "width_changed_at": now,
        "since": now,
        "wanted": width,
    }
    draft.status_fields |= {"freed_for": "", "freed_nodes": (), "freed_at": 0.0}
    draft.turn = Turn.START
    _write_reason(draft, decision.reason)


def _write_limit(draft: _Draft) -> None:
    """The declared wall limit as the Job's clock; one that laxity wrote before is taken off."""
    if names.WALL_LIMIT in draft.notes:
        limit_s: int | None = math.ceil(draft.row.wall_limit_s)
    elif own_limit_s(draft.job) is None:
        limit_s = None
    else:
        return
    draft.spec["activeDeadlineSeconds"] = limit_s
    draft.status_fields["written_limit_s"] = limit_s


def token_patch(job: Json, token: str) -> Json:
    """The patch of spec.template that shows the pods their token; nothing if they have it."""
    annotations = json_tree.mapping_at(job, "spec", "template", "metadata", "annotations")
    if not token or annotations.get(names.WORKER_TOKEN) == token:
        return {}
    return {"metadata": {"annotations": {names.WORKER_TOKEN: token}}}


def _write_width(draft: _Draft, decision: Resize) -> None:
    width, before = decision.workers, draft.row.workers
    if decision.at == "epoch":
        draft.annotations[names.RESIZE_TO] = str(width)
        _write_reason(draft, decision.reason)
        return
    resize_reason = decision.reason
    if width > before and (outside := _find_outside_nodes(draft.job, decision)):
        wanted, width = width, _widest_within(draft, decision)
        resize_reason = reason(
            "pods_may_not_go_there", wanted=wanted, nodes=", ".join(outside), workers=width
        )
        if width == before:
            _write_reason(draft, resize_reason)
            return
    draft.spec |= {"parallelism": width, "completions": width}
    draft.annotations |= {names.NODES: json.dumps(decision.nodes[:width]), names.RESIZE_TO: None}
    draft.status_fields |= {**gpu_seconds(draft), "width_changed_at": draft.now, "wanted": width}
    draft.turn = Turn.SCALE_IN if width < before else Turn.SCALE_OUT
    _write_reason(draft, resize_reason)


def _find_outside_nodes(job: Json, decision: Resize) -> list[str]:
    """Nodes where new workers cannot start: a template's affinity is fixed while the Job runs."""
    held = held_nodes(json_tree.mapping_at(job, "spec", "template"))
    return sorted(held.intersection(decision.nodes))


def _widest_within(draft: _Draft, decision: Resize) -> int:
    """The widest allowed width, up to the one decided on, whose workers may go where they should."""
    outside = set(_find_outside_nodes(draft.job, decision))
    room = next(
        (index for index, node in enumerate(decision.nodes) if node in outside), decision.workers
    )
    before = draft.row.workers
    return max((width for width in draft.row.widths if before < width <= room), default=before)


def _write_preemption(draft: _Draft, decision: Preempt) -> None:
    if decision.at == "epoch":
        if names.STOP not in draft.notes:
            request = {"at": draft.now, "for": decision.beneficiary}
            draft.annotations[names.STOP] = json.dumps(request)
        _write_reason(draft, decision.reason)
        return
    draft.spec["suspend"] = True
    draft.annotations |= {names.STOP: None, names.RESIZE_TO: None, names.NODES: None}
    done, epochs = draft.row.progress.epochs_done, draft.row.workload.epochs
    is_cut = decision.reason.code in CUTS and done < epochs
    kept = done if draft.row.holds_state else 0
    failed = count_failed_starts(draft.row) if decision.reason.code in FAILED_START_CODES else 0
    draft.status_fields |= {
        **gpu_seconds(draft),
        "queued_at": draft.now,
        "preemptions": draft.was.preemptions + (decision.reason.code not in LINK_ENDS),
        **(draft.was.count_cut(kept) if is_cut else {}),
        "wanted": 0,
        "freed_for": decision.beneficiary,
        "freed_nodes": draft.row.nodes if decision.beneficiary else (),
        "freed_at": draft.now if decision.beneficiary else 0.0,
        "avoided": _find_vain_nodes(draft.row, decision),
        "failed_starts": failed,
        "not_before": draft.now + backoff_s(failed) if failed else 0.0,
    }
    draft.turn = Turn.SUSPEND
    _write_reason(draft, decision.reason)


def _find_vain_nodes(row: Job, decision: Preempt) -> tuple[str, ...]:
    """Nodes of workers that did not come up there in time."""
    if decision.reason.code != "pods_do_not_fit":
        return ()
    return tuple(sorted({*machine_names(row.nodes[row.fitting_workers or 0 :])}))


def gpu_seconds(draft: _Draft) -> dict[str, float]:
    """The GPU-seconds with those of the width that ends now."""
    was, now = draft.was, draft.now
    ran_s = max(0.0, now - max(was.since, draft.row.submitted_at))
    return {"attained_gpu_s": was.attained_gpu_s + draft.row.gpus * ran_s, "since": now}


def _select_visible_ids(ids: Iterable[str], job_id: str) -> tuple[str, ...]:
    """Sources, and jobs of the same namespace."""
    namespace = job_id.partition("/")[0]
    return tuple(other_id for other_id in ids if may_be_named(other_id, namespace))


def _write_reason(draft: _Draft, shown_reason: Reason) -> None:
    shown_reason = draft.why = shown_reason.within(draft.row.id.partition("/")[0])
    draft.reasons.append((shown_reason.code, partial(_format_reason, shown_reason)))


def _format_reason(why: Reason) -> str:
    return why.text[:LONGEST_REASON]


def _write_status(draft: _Draft, cycle: int) -> None:
    if draft.why is not None:
        draft.annotations[names.REASON] = _format_reason(draft.why)
    state = replace(draft.was, **draft.status_fields)
    is_bare = names.STATUS not in draft.notes and names.VERDICT not in draft.notes
    if state != draft.was or (is_bare and draft.why is not None):  # only these two are sealed
        draft.annotations[names.STATUS] = state.to_text()
    if cycle and _find_changes(draft.notes, draft.annotations):
        draft.annotations[names.CYCLE] = str(cycle)


def _build_body(draft: _Draft) -> Json:
    """Only what differs from the Job: a decision repeated is no patch at all."""
    spec = json_tree.mapping_at(draft.job, "spec")
    metadata = {
        "annotations": _find_changes(draft.notes, draft.annotations),
        "labels": _find_changes(json_tree.labels_of(draft.job), draft.labels),
    }
    changed = {key: value for key, value in draft.spec.items() if spec.get(key) != value}
    if "completions" in changed or "parallelism" in changed:
        changed |= {k: draft.spec[k] for k in ("parallelism", "completions") if k in draft.spec}
    body: Json = {"spec": changed} if changed else {}
    metadata = {key: value for key, value in metadata.items() if value}
    return body | ({"metadata": metadata} if metadata else {})


def _find_changes(
    before: Mapping[str, str], wished: Mapping[str, str | None]
) -> dict[str, str | None]:
    return {key: value for key, value in wished.items() if before.get(key) != value}


def format_instant(at: float) -> str | None:
    """RFC 3339 to the millisecond; None for never, and for what no calendar can say."""
    return format_rfc3339(round(at, 3)) if calendar_instant(at) else None


def format_second(at: float) -> str | None:
    """RFC 3339 to the second, for predictions that people read; the verdict holds them in full."""
    return format_rfc3339(round(at)) if calendar_instant(at) else None
