"""Counter-offers that are accepted: the annotations, or the probe, that ask for what was offered."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from laxity import json_tree, names
from laxity.instants import LAST_AT, format_rfc3339
from laxity.job.spec import TrainingSpec
from laxity_scheduler.model.job import FOREVER, Offer
from laxity_scheduler.service.views.view_fields import Json

PROBE_EPOCHS: Final = 2
PROBE_KEY_PREFIX: Final = "probe-of-"  # a probe's idempotency key, before the uid that it is for


def probe_manifest(manifest: Mapping[str, Any], spec: TrainingSpec) -> Json:
    """The Job that measures two epochs of another one, which its idempotency key names."""
    annotations = {
        name: value
        for name, value in json_tree.annotations_of(manifest).items()
        if name not in names.OUTPUTS and name not in (names.DEADLINE, names.SUBMITTED_AT)
    }
    annotations |= {
        names.CLASS: "best_effort",
        names.EPOCHS: str(min(PROBE_EPOCHS, spec.epochs)),
        names.MODEL: spec.model,
        names.IDEMPOTENCY_KEY: f"{PROBE_KEY_PREFIX}{json_tree.uid_of(manifest)}",
    }
    named = f"{spec.name[:57]}-probe"
    probe = orjson.loads(orjson.dumps({"spec": manifest["spec"]}))
    probe["spec"].pop("selector", None)
    probe["spec"]["template"].get("metadata", {}).pop("labels", None)
    for entry in probe["spec"]["template"]["spec"]["containers"][0].get("env", ()):
        if entry.get("name") == names.ENV_EPOCHS:
            entry["value"] = annotations[names.EPOCHS]
        if entry.get("name") == names.ENV_JOB:
            entry["value"] = f"{spec.namespace}/{named}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": named,
            "namespace": spec.namespace,
            "labels": {names.MANAGED: "true", names.CLASS_LABEL: "best_effort"},
            "annotations": annotations,
        },
        "spec": probe["spec"] | {"suspend": True},
    }


def format_instant_ms(instant: float) -> str:
    """RFC 3339 to the millisecond, rounded up so that a checked offer does not become tighter.

    Instants beyond the calendar become its last instant.
    """
    milliseconds = -int(-max(0.0, min(instant, LAST_AT)) * 1000 // 1)
    return format_rfc3339(milliseconds / 1000, "milliseconds")


def annotations_for(offer: Offer) -> dict[str, str | None]:
    """The annotations that ask for what was offered."""
    if offer.kind in ("soft", "lent"):
        return {names.CLASS: "soft"}
    annotations: dict[str, str | None] = {}
    if offer.widths:
        annotations[names.WIDTHS] = ",".join(str(width) for width in offer.widths)
    if offer.kind == "deadline" and offer.deadline_at < FOREVER:
        annotations[names.DEADLINE] = format_instant_ms(offer.deadline_at)
        annotations.pop(names.WIDTHS, None)
    return annotations
