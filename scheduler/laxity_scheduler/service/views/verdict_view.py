"""Verdicts as people and programs see them, and as they stand on a Job."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from laxity import json_tree, names
from laxity.instants import instant_at
from laxity_scheduler.model.job import Forecast, Offer, Promise, Refusal, Verdict
from laxity_scheduler.service.views.view_fields import Json, finite_or_none
from laxity_scheduler.store.codec import load_verdict

VERDICT_NAMES: Final[Mapping[type, str]] = {
    Promise: "promised",
    Refusal: "refused",
    Forecast: "forecast",
}


def verdict_view(verdict: Verdict | None) -> Json:
    """A verdict's name, reason and figures."""
    if verdict is None:
        return {
            "verdict": "none",
            "verdict_code": "",
            "reason_code": "",
            "reason": "",
            "offers": [],
        }
    view: Json = {
        "verdict": VERDICT_NAMES[type(verdict)],
        "verdict_code": verdict.reason.code,  # the reason may become that of a later decision
        "reason_code": verdict.reason.code,
        "reason": verdict.reason.text,
        "offers": [offer_view(offer) for offer in getattr(verdict, "offers", ())],
        "p50_at": finite_or_none(getattr(verdict, "p50_at", None)),
        "p90_at": finite_or_none(verdict.p90_at),
    }
    if isinstance(verdict, Promise):
        view |= {
            "deadline_at": verdict.deadline_at,
            "promised_p90_at": finite_or_none(verdict.p90_at),
        }
        view |= {"runs": [[finite_or_none(until), workers] for until, workers in verdict.runs]}
        view |= {"rests_on": list(verdict.rests_on)}
    return view


def verdict_fields(verdict: Verdict | None) -> Json:
    view = verdict_view(verdict)
    return {name: view[name] for name in view if name not in ("runs", "rests_on")}


def offer_view(offer: Offer) -> Json:
    return {
        "kind": offer.kind,
        "deadline_at": finite_or_none(offer.deadline_at),
        "widths": list(offer.widths),
        "p90_at": finite_or_none(offer.p90_at),
        "checked_at": offer.checked_at,
        "gpus_borrowed": offer.gpus_borrowed,
        "p50_at": finite_or_none(offer.p50_at),
    }


def parse_verdict(text: Any) -> Verdict | None:
    """The verdict that is written on a Job; None if there is none that can be read."""
    try:
        document = json_tree.mapping_at(orjson.loads(text)) if isinstance(text, str) else {}
        return load_verdict(
            {**document, "kind": str(document.get("kind", "")).capitalize()} if document else None
        )
    except ValueError:
        return None


def parse_refused_deadline(text: Any) -> Json | None:
    """Another deadline that was refused while the promise stands, and the reason."""
    try:
        refused = json_tree.mapping_at(orjson.loads(text)) if isinstance(text, str) else {}
    except ValueError:
        return None
    if not refused:
        return None
    return {
        "deadline_at": instant_at(refused.get("deadline")),
        "reason_code": str(refused.get("code") or ""),
        "reason": str(refused.get("reason") or ""),
    }


def shows_verdict_of(view: Mapping[str, Any], manifest: Mapping[str, Any]) -> bool:
    """Whether this view shows the verdict that is written on the Job.

    A promise is known by its deadline: its newest P90 finish may not stand on the Job yet.
    """
    annotations = json_tree.annotations_of(manifest)
    written = verdict_fields(parse_verdict(annotations.get(names.VERDICT)))
    compared = written.keys() & {"verdict", "deadline_at"}
    return all(view.get(name) == written[name] for name in compared)
