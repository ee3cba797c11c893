"""What people and programs see of a job: one flat JSON object, the same everywhere.

A view is made of three sources that may each be missing: the Job's JSON (the truth about what
runs), its row in the snapshot (what was decided on), and the last view (what a cluster forgets: the widths
it had, when it ended). Instants are POSIX seconds; what is not known is null.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from laxity import json_tree, names
from laxity.instants import instant_at
from laxity_profiler.model_key import model_of
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.views.borrowing import (
    NOTHING_BORROWED,
    borrowing_fields,
    count_borrowed_gpu_h,
)
from laxity_scheduler.service.views.manifest_view import NO_PART, fields_from_manifest
from laxity_scheduler.service.views.promise_outcome import is_over, laxity_s, outcome_of
from laxity_scheduler.service.views.stalling import Stall
from laxity_scheduler.service.views.verdict_view import verdict_fields
from laxity_scheduler.service.views.view_fields import Json, finite_or_none

CONTINUOUS_FIELDS: Final = ("p50_at", "p90_at", "laxity_s", "expected_start_at")  # move with time
NOTHING_EXPECTED: Final[Json] = {"p50_at": None, "p90_at": None, **NO_PART}
JITTER_S: Final = 1.0
WAITING: Final = ("queued", "suspended")
MAX_HISTORY: Final = 500


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """When a job is expected to end, by the predictor in use.

    `part`: "starting" or "finishing" while it is before its first epoch or after its last one, since
    when, and how long that usually takes (P50); else "". `part_reason`: what keeps its start, if known.
    """

    p50_at: float
    p90_at: float
    part: str = ""
    part_since: float | None = None
    part_usual_s: float | None = None
    part_reason: str = ""
    stall: Stall | None = None


@dataclass(frozen=True, slots=True)
class LastReason:
    """The reason of the last decision about a job; if it waits, who holds what it needs."""

    reason_code: str
    reason: str
    held_by: tuple[str, ...] = ()
    expected_start_at: float = math.inf


@dataclass(frozen=True, slots=True)
class Absence:
    """From the last cycle of the service before, until this one began, nobody saw what ran."""

    since: float
    until: float

    def run_over_at(self, report: Report, ended_at: float) -> float:
        """When the run of a job that ended was over: it may have waited for the service to hand in."""
        over = report.finished and self.since <= report.since <= self.until
        return min(report.since, ended_at) if over else ended_at


def view_of(
    manifest: Mapping[str, Any],
    row: Job | None,
    *,
    report: Report,
    before: Mapping[str, Any] | None,
    now: float,
    finish: ExpectedEnd | None = None,
    last_reason: LastReason | None = None,
    borrowed_gpus: int = 0,
    absence: Absence | None = None,
) -> Json:
    """The view of one Job now. `before` is its last one, None for a Job never seen."""
    view = fields_from_manifest(manifest) | _fields_from_last_view(before)
    if row is not None:
        view |= _fields_from_row(row) | verdict_fields(row.verdict)
    view |= _reason_fields(view, before, last_reason)
    if row is not None:
        if finish is not None:
            view |= end_fields(finish)
        view["width_history"] = _extend_history(view["width_history"], row, now)
        view |= borrowing_fields(view, borrowed_gpus, now)
    if absence is not None:
        view["width_history"] = _without_stop_unseen(view["width_history"], report, absence)
    if view["state"] not in WAITING:
        view |= {"held_by": [], "expected_start_at": None}
    elif row is not None and row.not_before > now:
        view |= {"held_by": [], "expected_start_at": row.not_before, **NOTHING_EXPECTED}
    elif last_reason is not None:
        view |= wait_fields(last_reason)
    if row is None or row.holds_state:
        view["epochs_done"] = max(view["epochs_done"], report.progress.epochs_done)
    died = "" if row is None else row.died  # the cluster's error of a worker that reports no more
    view |= {"saved_epoch": report.saved_epoch, "save_error": report.save_error}
    view |= {"code_changed": report.code_changed or view["code_changed"]}
    view["epochs"] = dict(report.declared).get("epochs", view["epochs"])  # also without a row
    view |= {"result": report.result, "error": report.failed or died or _last_error(manifest, view)}
    view |= _fields_of_end(manifest, view, report, now, absence)
    if view["finished_at"] is not None:
        view |= borrowing_fields(view, 0, view["finished_at"])
    return view | {"outcome": outcome_of(view), "laxity_s": laxity_s(view, now)}


def shows_wait(view: Mapping[str, Any], row: Job | None, now: float) -> bool:
    """Whether the view shows what the last decision lets the job wait for."""
    return view["state"] in WAITING and not (row is not None and row.not_before > now)


def wait_fields(last_reason: LastReason) -> Json:
    """The fields of a view for what a job waits for."""
    return {
        "held_by": list(last_reason.held_by),
        "expected_start_at": finite_or_none(last_reason.expected_start_at),
    }


def end_fields(finish: ExpectedEnd) -> Json:
    """The fields of a view for an expected end."""
    since, usual_s = finish.stall or (None, None)
    return {
        "p50_at": finite_or_none(finish.p50_at),
        "p90_at": finite_or_none(finish.p90_at),
        "part": finish.part,
        "part_since": finish.part_since,
        "part_usual_s": finish.part_usual_s,
        "part_reason": finish.part_reason,
        "stalled_since": since,
        "usual_epoch_s": usual_s,
    }


def readable_view(view: Json, now: float) -> Json:
    """The view as readers get it, with figures as of now and without internal fields."""
    hidden = (
        "told",
        "released",
        "cancelled",
        "borrowed_gpu_s",
        "borrowed_at",
        "queue_at",
        "queue_s",
    )
    answer = {name: value for name, value in view.items() if name not in hidden}
    return answer | {
        "laxity_s": laxity_s(view, now),
        "borrowed_gpu_h": count_borrowed_gpu_h(view, now),
    }


def view_of_missing(before: Mapping[str, Any], now: float) -> Json:
    """The view of a Job that is no longer there: cancelled, unless it had ended or was refused."""
    if is_over(before):
        return dict(before)
    state = "refused" if before["state"] == "refused" else "cancelled"
    view = dict(before) | {"state": state, "finished_at": now, "workers": 0, "formed": 0}
    view["width_history"] = _close_history(view["width_history"], now)
    view |= borrowing_fields(view, 0, now)
    view |= NOTHING_EXPECTED if state == "cancelled" else NO_PART
    if before.get("released"):
        view["error"] = "released: laxity no longer looks after it"
    return view | {"outcome": outcome_of(view), "laxity_s": None, "held_by": []}


def without_end_of_return(before: Json | None, manifest: Mapping[str, Any]) -> Json | None:
    """The last view of a Job; of one that was missing and is back, as if it had never ended.

    Somebody has taken its label off, and has put it on again: its own end is still to come, or it came
    meanwhile, at an instant that the Job tells.
    """
    if before is None or not is_over(before):
        return before
    if json_tree.get_in(manifest, "metadata", "deletionTimestamp"):
        return before
    if before["state"] != "cancelled" and final_condition(manifest):
        return before
    released = dict.fromkeys(("released", "cancelled"))
    return before | released | {"finished_at": None, "error": "", "outcome": ""}


def looks_same(view: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a reader would see no difference: instants that move with time may differ a little."""
    for name, value in other.items():
        old = view.get(name)
        if name == "revision" or value == old or name == "laxity_s":
            continue
        if (
            name not in CONTINUOUS_FIELDS
            or value is None
            or old is None
            or abs(value - old) > JITTER_S
        ):
            return False
    return True


def _fields_from_last_view(before: Mapping[str, Any] | None) -> Json:
    """What only the last view knows. Everything else comes from the Job and its row."""
    if before is None:
        return {}
    lasting = (
        *NOTHING_BORROWED, "width_history", "epochs_done", "deadline_at", "widths", "preemptions", "epochs", "holds_state", "finished_early", "prediction_note", "code_changed",
        "class", "model", "submitted_at", "error", "gpus_per_worker", "broken", "finished_at", "held_by", "expected_start_at",
    )  # fmt: skip
    return {name: before[name] for name in lasting if before.get(name) is not None}


def _fields_from_row(row: Job) -> Json:
    return {
        "class": row.service_class,
        "model": model_of(row.workload.model),
        "state": _state_of_row(row),
        "deadline_at": finite_or_none(row.deadline_at),
        "submitted_at": row.submitted_at,
        "workers": row.workers,
        "gpus_per_worker": row.gpus_per_worker,
        "formed": row.formed,
        "widths": list(row.widths),
        "epochs": row.workload.epochs,
        "epochs_done": row.progress.epochs_done,
        "preemptions": row.preemptions,
        "holds_state": row.holds_state,
        "pinned": row.pinned,
        "promised_p90_at": None,
    }


def _state_of_row(row: Job) -> str:
    if row.refused:
        return "refused"
    if row.workers:
        stops = row.stop_requested_at is not None or row.parked_epoch is not None
        return "stopping" if stops else "running"
    if row.terminating_workers:
        return "stopping"
    return "suspended" if row.preemptions else "queued"


def _reason_fields(
    view: Mapping[str, Any], before: Mapping[str, Any] | None, last_reason: LastReason | None
) -> Json:
    """A refusal's own reason; else that of the last decision, which outlives the snapshot."""
    if view["verdict"] == "refused":
        return {}
    if last_reason is not None:
        return {"reason_code": last_reason.reason_code, "reason": last_reason.reason}
    if before is None or not before["reason"] or before["verdict"] == "refused":
        return {}
    return {"reason_code": before["reason_code"], "reason": before["reason"]}


def _extend_history(history: Sequence[Sequence[float]], row: Job, now: float) -> list[list[float]]:
    """Widths over time: a new entry when the width is another one."""
    past = [list(entry) for entry in history]
    if (past[-1][1] if past else 0) == row.workers:
        return past
    since = row.width_changed_at or row.resumed_at if row.workers else None
    since = now if since is None or since > now or (past and since < past[-1][0]) else since
    return [*past[-MAX_HISTORY:], [since, row.workers]]


def _without_stop_unseen(
    history: Sequence[Sequence[float]], report: Report, absence: Absence
) -> list[list[float]]:
    """The history with the time without workers that began while the service was away.

    They were gone from the last sign of them, or of the service, until worker 0 began again: with
    `laxity down`, or as a machine was off. Where they ran on, worker 0 has not begun again.
    """
    past = [list(entry) for entry in history]
    silent_since, back_at = report.silent_since, report.started_at
    if silent_since is None or back_at is None or silent_since > absence.until:
        return past
    gone_at = max(silent_since, absence.since)
    before = [entry for entry in past if entry[0] < gone_at]
    during = [entry for entry in past if gone_at <= entry[0] < back_at]
    if gone_at >= back_at or not before or not before[-1][1]:
        return past
    workers = (during or before)[-1][1]
    return [
        *before,
        [gone_at, 0],
        *([[back_at, workers]] if workers else []),
        *past[len(before) + len(during) :],
    ]


def _close_history(history: Sequence[Sequence[float]], ended_at: float) -> list[list[float]]:
    """The history with an entry of 0 workers at the end."""
    past = [list(entry) for entry in history]
    return [*past, [ended_at, 0]] if past and past[-1][1] else past


def _last_error(manifest: Mapping[str, Any], view: Mapping[str, Any]) -> str:
    """The error that the last view has; "" once all workers run again."""
    ready = json_tree.get_in(manifest, "status", "ready")
    runs = view["state"] == "running" and isinstance(ready, int) and ready >= view["workers"]
    return "" if runs else str(view["error"])


def _fields_of_end(
    manifest: Mapping[str, Any],
    view: Mapping[str, Any],
    report: Report,
    now: float,
    absence: Absence | None,
) -> Json:
    """The fields that the Job's final condition sets; {} while it has none."""
    condition = final_condition(manifest)
    if not condition and json_tree.get_in(manifest, "metadata", "deletionTimestamp"):
        ended_at = view["finished_at"] or now
        return {"state": "cancelled", "finished_at": ended_at, "workers": 0, **NOTHING_EXPECTED}
    if not condition:
        return {}
    is_complete = condition["type"] == "Complete"
    completed = json_tree.get_in(manifest, "status", "completionTime") if is_complete else None
    ended_at = (
        view["finished_at"] or instant_at(completed or condition.get("lastTransitionTime")) or now
    )
    if condition.get("reason") == names.REFUSED and view["verdict"] == "refused":
        return {"state": "refused", "finished_at": ended_at}
    run_over_at = ended_at if absence is None else absence.run_over_at(report, ended_at)
    error = report.failed  # of a finished job: its result could not be kept
    if not is_complete:
        error = view["error"] or str(condition.get("message") or "")
    return {
        "state": "finished" if is_complete else "failed",
        "finished_early": is_complete and _is_early(view, report),
        "finished_at": ended_at,
        "workers": 0,
        "formed": 0,
        "error": error,
        "width_history": _close_history(view["width_history"], run_over_at),
    }


def _is_early(view: Mapping[str, Any], report: Report) -> bool:
    """Whether the training function has returned with epochs left, as it says itself."""
    trained = report.finished_epochs
    return bool(view["finished_early"] if trained is None else trained < view["epochs"])


def final_condition(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The condition that says how the Job ended; {} while it has none."""
    for condition in json_tree.list_at(manifest, "status", "conditions"):
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            final: Mapping[str, Any] = condition
            return final
    return {}
