"""What a Job's own JSON says about it, whether or not its annotations make sense."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from laxity import json_tree, names
from laxity.clock_time import is_like_clock_time
from laxity.instants import instant_at
from laxity.job.manifest_reader import parse_steps
from laxity.job.submission import queue_instant
from laxity_scheduler.model.job import Refusal
from laxity_scheduler.service.views.borrowing import NOTHING_BORROWED
from laxity_scheduler.service.views.verdict_view import (
    parse_refused_deadline,
    parse_verdict,
    verdict_fields,
)
from laxity_scheduler.service.views.view_fields import Json, job_id_of

NO_PART: Final[Json] = {"part": "", "part_since": None, "part_usual_s": None, "part_reason": ""}

OF_ONE_JOB: Final = {  # labels of its pods
    f"{prefix}{name}"
    for prefix in ("", "batch.kubernetes.io/")
    for name in ("controller-uid", "job-name")
}


def fields_from_manifest(manifest: Mapping[str, Any]) -> Json:
    """What the Job's own JSON says, whether or not its annotations make sense."""
    annotations = json_tree.annotations_of(manifest)
    by_rule = "hard" if annotations.get(names.DEADLINE) else "best_effort"
    verdict = parse_verdict(annotations.get(names.VERDICT))
    experiment, _, run_id = str(annotations.get(names.RUN_ID) or "").rpartition("/")
    return {
        "id": job_id_of(manifest),
        "uid": json_tree.uid_of(manifest),
        "class": str(annotations.get(names.CLASS) or by_rule),
        "model": str(annotations.get(names.MODEL) or ""),
        "state": "refused" if isinstance(verdict, Refusal) else "queued",
        "deadline_at": None,
        "deadline_clock": _clock_text(annotations.get(names.DEADLINE)),
        "submitted_at": _queue_entry_at(
            annotations.get(names.SUBMITTED_AT),
            json_tree.get_in(manifest, "metadata", "creationTimestamp"),
        ),
        "promised_p90_at": None,
        "given_p90_at": None,
        "p50_at": None,
        "p90_at": None,
        "finish_pending": False,
        **NO_PART,
        "laxity_s": None,
        "workers": 0,
        "gpus_per_worker": 1,
        "formed": 0,
        "widths": [],
        "width_history": [],
        **NOTHING_BORROWED,
        "epochs": _parse_count(annotations.get(names.EPOCHS)),
        "epochs_done": 0,
        "preemptions": 0,
        "holds_state": True,
        "finished_early": False,
        "saved_epoch": None,
        "save_error": "",
        "code_changed": "",
        "stalled_since": None,
        "usual_epoch_s": None,
        "prediction_note": "",
        "pinned": names.PIN in annotations,
        "attempt": _parse_count(annotations.get(names.ATTEMPT)) or 1,
        "held_by": [],
        "expected_start_at": None,
        "finished_at": None,
        "result": None,
        "experiment": experiment,
        "run_id": run_id,
        "flow_run": str(json_tree.labels_of(manifest).get(names.FLOW_RUN) or ""),
        "followed_by": str(annotations.get(names.FOLLOWED_BY) or ""),
        "idempotency_key": str(annotations.get(names.IDEMPOTENCY_KEY) or ""),
        **_group_fields(annotations),
        "error": "",
        "outcome": "",
        "broken": False,
        "refused_deadline": parse_refused_deadline(annotations.get(names.REFUSED_DEADLINE)),
        **verdict_fields(verdict),
    }


def _group_fields(annotations: Mapping[str, Any]) -> Json:
    """Of which group it is, as which step, and after which; its share is known to the keeper."""
    group, step, after = (
        str(annotations.get(name) or "") for name in (names.GROUP, names.STEP, names.AFTER)
    )
    return {"group": group, "step": step, "after": list(parse_steps(after)), "share_reason": ""}


def project_view(manifest: Mapping[str, Any]) -> Json:
    """The working directory of a Job's workers and the names of their variables, no values."""
    containers = json_tree.list_at(manifest, "spec", "template", "spec", "containers")
    rows = json_tree.list_at(containers, 0, "env")
    variables = {str(json_tree.get_in(row, "name")) for row in rows}
    workdir = json_tree.get_in(containers, 0, "workingDir")
    return {"workdir": str(workdir or ""), "environment": sorted(variables)}


def declaration_of(manifest: Mapping[str, Any]) -> Json:
    """The Job without its status, what the API server sets, and what its workers are told."""
    kept: Json = orjson.loads(orjson.dumps(manifest))
    kept.pop("status", None)
    kept["metadata"].pop("managedFields", None)
    if not json_tree.get_in(kept, "spec", "manualSelector"):
        kept["spec"].pop("selector", None)
        labels = json_tree.get_in(kept, "spec", "template", "metadata", "labels") or {}
        for name in OF_ONE_JOB & labels.keys():
            del labels[name]
    for container in json_tree.list_at(kept, "spec", "template", "spec", "containers"):
        for name in ("env", "envFrom"):
            container.pop(name, None)
    return kept


def _clock_text(deadline: Any) -> str:
    """A deadline by the clock as it is declared, with its zone; "" for any other."""
    return deadline if isinstance(deadline, str) and is_like_clock_time(deadline) else ""


def _queue_entry_at(claimed: Any, created: Any) -> float | None:
    """When the Job took its place in the queue; before it is created, the instant that it claims."""
    claimed_at, created_at = instant_at(claimed), instant_at(created)
    return claimed_at if created_at is None else queue_instant(claimed_at, created_at)


def _parse_count(text: Any) -> int:
    digits = str(text or "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 0
