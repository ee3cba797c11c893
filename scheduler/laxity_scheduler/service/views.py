"""What people and programs are told of a job: one flat JSON object, the same everywhere.

A view is made of three sources that may each be missing: the Job's JSON (the truth about what
runs), its row in the snapshot (what was decided on), and the view before (what a cluster forgets:
the widths it had, when it ended). Instants are POSIX seconds; what is not known is null.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from laxity import names
from laxity.job.submission import queued_from
from laxity.parsing import instant_at
from laxity_profiler.model_key import model_of
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.verdict import Forecast, Offer, Promise, Refusal, Verdict
from laxity_scheduler.store.codec import load_verdict

Json = dict[str, Any]
ENDED: Final = frozenset({"finished", "failed", "cancelled"})
VERDICT_NAMES: Final[Mapping[type, str]] = {
    Promise: "promised",
    Refusal: "refused",
    Forecast: "forecast",
}
FLOWING: Final = ("p50_at", "p90_at", "laxity_s", "expected_start_at")  # these move with time
JITTER_S: Final = 1.0
FATES: Final = ("kept", "broken", "open", "failed", "cancelled")  # what becomes of a promise
LONGEST_HISTORY: Final = 500


@dataclass(frozen=True, slots=True)
class Finish:
    """When a job is expected to end, by the predictor in use."""

    p50_at: float
    p90_at: float


@dataclass(frozen=True, slots=True)
class Said:
    """What was decided last about a job and why; for one that waits, who holds what it needs."""

    reason_code: str
    reason: str
    held_by: tuple[str, ...] = ()
    expected_start_at: float = math.inf


def view_of(
    manifest: Mapping[str, Any],
    row: Job | None,
    *,
    report: Report,
    before: Mapping[str, Any] | None,
    now: float,
    finish: Finish | None = None,
    said: Said | None = None,
) -> Json:
    """The view of one Job now. `before` is its last one, None for a Job never seen."""
    view = _written(manifest) | _kept(before)
    if row is not None:
        view |= _decided(row, now) | _verdict(row.verdict)
    view |= _reason(view, before, said)
    if row is not None:
        if finish is not None:
            view |= ends(finish)
        view["width_history"] = _history(view["width_history"], row, now)
    if view["state"] not in ("queued", "suspended"):
        view |= {"held_by": [], "expected_start_at": None}
    elif row is not None and row.not_before > now:
        unknown = {"p50_at": None, "p90_at": None}
        view |= {"held_by": [], "expected_start_at": row.not_before} | unknown
    elif said is not None:
        view |= {
            "held_by": list(said.held_by),
            "expected_start_at": finite(said.expected_start_at),
        }
    view["epochs_done"] = max(view["epochs_done"], report.progress.epochs_done)
    view |= {"result": report.result, "error": report.failed or _died(row) or view["error"]}
    view |= _ended(manifest, view, report, now)
    return view | {"outcome": outcome(view), "laxity_s": laxity_s(view, now)}


def is_told(view: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    """Whether the verdict that stands on the Job is the one that this view of it has."""
    said = (manifest.get("metadata") or {}).get("annotations") or {}
    stands = _verdict(_told(said.get(names.VERDICT)))
    same = ("verdict", "promised_p90_at")
    return all(view.get(name) == stands.get(name) for name in same)


def ends(finish: Finish) -> Json:
    """What a view says of when its job is expected to end."""
    return {"p50_at": finite(finish.p50_at), "p90_at": finite(finish.p90_at)}


def _died(row: Job | None) -> str:
    """What a worker that cannot report it any more died of, as the cluster tells it."""
    return "" if row is None else row.died


def gone(before: Mapping[str, Any], now: float) -> Json:
    """The view of a Job that is no longer there: cancelled, unless it had ended or was refused."""
    if is_over(before):
        return dict(before)
    state = "refused" if before["state"] == "refused" else "cancelled"
    view = dict(before) | {"state": state, "finished_at": now, "workers": 0, "formed": 0}
    view["width_history"] = _stopped(view["width_history"], now)
    if before.get("released"):
        view["error"] = "released: laxity no longer looks after it"
    return view | {"outcome": outcome(view), "laxity_s": None, "held_by": []}


def is_over(view: Mapping[str, Any]) -> bool:
    """Whether nothing more happens to this Job; a refused one may still ask again."""
    return view["finished_at"] is not None


def outcome(view: Mapping[str, Any]) -> str:
    """How it came out: "" while that is open. Kept means finished at or before the deadline."""
    state, deadline_at = view["state"], view["deadline_at"]
    if state in ("failed", "cancelled", "refused"):
        return str(state)
    if state != "finished":
        return ""
    if deadline_at is None:
        return "finished"
    if view["finished_at"] <= deadline_at:
        return "kept"
    return "broken" if view["verdict"] == "promised" else "late"


def promise_counts(all_views: Iterable[Mapping[str, Any]]) -> Json:
    """What became of the promises: `given` is the sum of all others.

    `failed` are runs that ended by an error of their own, `cancelled` those that somebody stopped:
    they neither kept nor broke their promise, unless the deadline had passed before.
    """
    fates = Counter(_fate(view) for view in all_views if view["verdict"] == "promised")
    return {"given": fates.total(), **{fate: fates[fate] for fate in FATES}}


def _fate(view: Mapping[str, Any]) -> str:
    """What became of a promise; one that was broken stays so, whatever came after."""
    if view["broken"]:
        return "broken"
    outcome_word = str(view["outcome"] or "open")
    return outcome_word if outcome_word in FATES else "kept"  # its deadline was taken away


def broken(view: Mapping[str, Any], now: float) -> bool:
    """Whether a promise is broken already: its deadline has passed and the job goes on, or did.

    A run that was cancelled, or whose own code raised, ended by its user: it breaks no promise.
    """
    if view["verdict"] != "promised" or view["deadline_at"] is None:
        return False
    if view["state"] in ("cancelled", "failed"):
        return False
    ended_at = view["finished_at"] if view["state"] == "finished" else now
    return bool(ended_at > view["deadline_at"])


def laxity_s(view: Mapping[str, Any], now: float) -> float | None:
    """Seconds between the P90 finish and the deadline; null without either, or after the end."""
    if view["deadline_at"] is None or view["p90_at"] is None or view["state"] in ENDED:
        return None
    return float(view["deadline_at"] - max(view["p90_at"], now))


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a reader would see no news: instants that flow with time may move a little."""
    for name, value in other.items():
        old = one.get(name)
        if name == "revision" or value == old or name == "laxity_s":
            continue
        if name not in FLOWING or value is None or old is None or abs(value - old) > JITTER_S:
            return False
    return True


def in_danger(view: Mapping[str, Any]) -> bool:
    """Whether a promise is expected to be broken, and is not yet."""
    if view["verdict"] != "promised" or view["state"] in ENDED or view["broken"]:
        return False
    return bool(view["p90_at"] and view["deadline_at"] and view["p90_at"] > view["deadline_at"])


def job_id(manifest: Mapping[str, Any]) -> str:
    """The "namespace/name" of a Job."""
    metadata = manifest.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name', '')}"


def finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def project_view(manifest: Mapping[str, Any]) -> Json:
    """The working directory of a Job's workers and the names of their variables, no values."""
    pod = _mapping(_mapping(_mapping(manifest.get("spec")).get("template")).get("spec"))
    containers = pod.get("containers")
    first = _mapping(containers[0]) if isinstance(containers, list) and containers else {}
    rows = first.get("env")
    names_set = (
        {str(_mapping(row).get("name")) for row in rows} if isinstance(rows, list) else set()
    )
    return {"workdir": str(first.get("workingDir") or ""), "environment": sorted(names_set)}


def offer_view(offer: Offer) -> Json:
    return {
        "kind": offer.kind,
        "deadline_at": finite(offer.deadline_at),
        "widths": list(offer.widths),
        "p90_at": finite(offer.p90_at),
        "checked_at": offer.checked_at,
        "gpus_borrowed": offer.gpus_borrowed,
    }


def verdict_view(verdict: Verdict | None) -> Json:
    """A verdict's name, reason and figures."""
    if verdict is None:
        return {"verdict": "none", "reason_code": "", "reason": "", "offers": []}
    view: Json = {
        "verdict": VERDICT_NAMES[type(verdict)],
        "reason_code": verdict.reason.code,
        "reason": verdict.reason.text,
        "offers": [offer_view(offer) for offer in getattr(verdict, "offers", ())],
        "p50_at": finite(getattr(verdict, "p50_at", None)),
        "p90_at": finite(verdict.p90_at),
    }
    if isinstance(verdict, Promise):
        view |= {"deadline_at": verdict.deadline_at, "promised_p90_at": finite(verdict.p90_at)}
        view |= {"runs": [[finite(until), workers] for until, workers in verdict.runs]}
        view |= {"rests_on": list(verdict.rests_on)}
    return view


def _verdict(verdict: Verdict | None) -> Json:
    view = verdict_view(verdict)
    return {name: view[name] for name in view if name not in ("runs", "rests_on")}


def _written(manifest: Mapping[str, Any]) -> Json:
    """What the Job's own JSON says, whether or not its annotations make sense."""
    metadata = manifest.get("metadata") or {}
    said = metadata.get("annotations") or {}
    by_rule = "hard" if said.get(names.DEADLINE) else "best_effort"
    verdict = _told(said.get(names.VERDICT))
    experiment, _, run_id = str(said.get(names.RUN_ID) or "").rpartition("/")
    return {
        "id": job_id(manifest),
        "uid": str(metadata.get("uid", "")),
        "class": str(said.get(names.CLASS) or by_rule),
        "model": str(said.get(names.MODEL) or ""),
        "state": "refused" if isinstance(verdict, Refusal) else "queued",
        "deadline_at": None,
        "submitted_at": _came_at(said.get(names.SUBMITTED_AT), metadata.get("creationTimestamp")),
        "promised_p90_at": None,
        "p50_at": None,
        "p90_at": None,
        "laxity_s": None,
        "workers": 0,
        "formed": 0,
        "widths": [],
        "width_history": [],
        "epochs": _whole(said.get(names.EPOCHS)),
        "epochs_done": 0,
        "preemptions": 0,
        "pinned": names.PIN in said,
        "attempt": _whole(said.get(names.ATTEMPT)) or 1,
        "held_by": [],
        "expected_start_at": None,
        "finished_at": None,
        "result": None,
        "experiment": experiment,
        "run_id": run_id,
        "flow_run": str((metadata.get("labels") or {}).get(names.FLOW_RUN) or ""),
        "followed_by": str(said.get(names.FOLLOWED_BY) or ""),
        "idempotency_key": str(said.get(names.IDEMPOTENCY_KEY) or ""),
        "error": "",
        "outcome": "",
        "broken": False,
        "refused_deadline": _refused_deadline(said.get(names.REFUSED_DEADLINE)),
        **_verdict(verdict),
    }


def _refused_deadline(text: Any) -> Json | None:
    """Another deadline that was refused while the promise stands, and why."""
    try:
        refused = _mapping(orjson.loads(text)) if isinstance(text, str) else {}
    except ValueError:
        return None
    if not refused:
        return None
    return {
        "deadline_at": instant_at(refused.get("deadline")),
        "reason_code": str(refused.get("code") or ""),
        "reason": str(refused.get("reason") or ""),
    }


def _kept(before: Mapping[str, Any] | None) -> Json:
    """What only earlier views know. The rest is said anew by the Job and its row."""
    if before is None:
        return {}
    lasting = (
        "width_history", "epochs_done", "deadline_at", "widths", "preemptions", "epochs",
        "class", "model", "submitted_at", "error", "broken", "finished_at", "held_by", "expected_start_at",
    )  # fmt: skip
    return {name: before[name] for name in lasting if before.get(name) is not None}


def _decided(row: Job, now: float) -> Json:
    return {
        "class": row.service_class,
        "model": model_of(row.workload.model),
        "state": _state(row),
        "deadline_at": finite(row.deadline_at),
        "submitted_at": row.submitted_at,
        "workers": row.workers,
        "formed": row.formed,
        "widths": list(row.widths),
        "epochs": row.workload.epochs,
        "epochs_done": row.progress.epochs_done,
        "preemptions": row.preemptions,
        "pinned": row.pinned,
        "promised_p90_at": None,
    }


def _state(row: Job) -> str:
    if row.refused:
        return "refused"
    if row.workers:
        stops = row.stop_requested_at is not None or row.parked_epoch is not None
        return "stopping" if stops else "running"
    if row.terminating_workers:
        return "stopping"
    return "suspended" if row.preemptions else "queued"


def _reason(view: Mapping[str, Any], before: Mapping[str, Any] | None, said: Said | None) -> Json:
    """A refusal's own reason; else that of the last decision, which outlives the snapshot."""
    if view["verdict"] == "refused":
        return {}
    if said is not None:
        return {"reason_code": said.reason_code, "reason": said.reason}
    if before is None or not before["reason"] or before["verdict"] == "refused":
        return {}
    return {"reason_code": before["reason_code"], "reason": before["reason"]}


def _history(history: Sequence[Sequence[float]], row: Job, now: float) -> list[list[float]]:
    """Widths over time: a new entry when the width is another one."""
    past = [list(entry) for entry in history]
    if (past[-1][1] if past else 0) == row.workers:
        return past
    at = row.width_changed_at or row.resumed_at if row.workers else None
    at = now if at is None or at > now or (past and at < past[-1][0]) else at
    return [*past[-LONGEST_HISTORY:], [at, row.workers]]


def _stopped(history: Sequence[Sequence[float]], at: float) -> list[list[float]]:
    past = [list(entry) for entry in history]
    return [*past, [at, 0]] if past and past[-1][1] else past


def _ended(
    manifest: Mapping[str, Any], view: Mapping[str, Any], report: Report, now: float
) -> Json:
    """The end, as the Job's conditions tell it; nothing while it has none."""
    status = _mapping(manifest.get("status"))
    for condition in status.get("conditions") or ():
        kind = condition.get("type")
        if kind not in ("Complete", "Failed") or condition.get("status") != "True":
            continue
        said = status.get("completionTime") if kind == "Complete" else None
        at = view["finished_at"] or instant(said or condition.get("lastTransitionTime")) or now
        if condition.get("reason") == names.REFUSED and view["verdict"] == "refused":
            return {"state": "refused", "finished_at": at}
        error = report.failed  # of a finished job: that its result is not kept
        if kind == "Failed":
            error = view["error"] or str(condition.get("message") or "")
        return {
            "state": "finished" if kind == "Complete" else "failed",
            "finished_at": at,
            "workers": 0,
            "formed": 0,
            "error": error,
            "width_history": _stopped(view["width_history"], at),
        }
    if (manifest.get("metadata") or {}).get("deletionTimestamp"):
        return {"state": "cancelled", "finished_at": view["finished_at"] or now, "workers": 0}
    return {}


def instant(text: Any) -> float | None:
    """POSIX seconds of an RFC 3339 instant; None if it is none."""
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return at.timestamp() if at.tzinfo else None


def _came_at(claimed: Any, created: Any) -> float | None:
    """When the Job took its place in the queue; before it is created, when it says that it did."""
    claimed_at, created_at = instant(claimed), instant(created)
    return claimed_at if created_at is None else queued_from(claimed_at, created_at)


def _whole(text: Any) -> int:
    shown = str(text or "")
    return int(shown) if shown.isascii() and shown.isdigit() and len(shown) < 16 else 0


def _told(text: Any) -> Verdict | None:
    """The verdict that stands on a Job; None where nothing readable stands."""
    try:
        said = _mapping(orjson.loads(text)) if isinstance(text, str) else {}
        return load_verdict(
            {**said, "kind": str(said.get("kind", "")).capitalize()} if said else None
        )
    except ValueError:
        return None


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
