"""What sinks are sent about a job: its newest view, what happened, and figures for charts."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from laxity.worker.mlflow_tracking import EpochMetrics
from laxity_scheduler.service.views.view_fields import Json


@dataclass(frozen=True, slots=True)
class Message:
    """The newest view of one job, the events since the last message, and new points.

    `points_only`: its view may be old by now, as any replica takes what workers measured, and says
    nothing about how the job stands. `rows`: keys of the store's rows in which the points wait.
    """

    view: Json
    events: tuple[str, ...] = ()
    points: tuple[EpochMetrics, ...] = ()
    points_only: bool = False
    rows: tuple[str, ...] = ()

    @property
    def uid(self) -> str:
        return str(self.view["uid"])

    @property
    def job_id(self) -> str:
        return str(self.view.get("id") or self.uid)

    def combine(self, later: "Message") -> "Message":
        """One message of both: all events and points, and the later view that says how the job stands."""
        stands = self if later.points_only else later
        return Message(
            stands.view,
            self.events + later.events,
            self.points + later.points,
            self.points_only and later.points_only,
            self.rows + later.rows,
        )


def events_between(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the events that this change of a view stands for."""
    return tuple(_iter_events(before or {}, after))


def _iter_events(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if after["verdict"] != "none" and after["verdict"] != before.get("verdict"):
        yield after["verdict"]
    elif after["verdict"] == "promised" and _has_moved(before, after):
        yield "promise_moved"
    if after.get("danger") and not before.get("danger"):
        yield "promise_in_danger"
    if after["broken"] and not before.get("broken"):
        yield "promise_broken"
    if after.get("stalled_since") is not None and before.get("stalled_since") is None:
        yield "stalled"
    if after["outcome"] and after["outcome"] != before.get("outcome") != "refused":
        yield f"ended_{after['outcome']}"


def _has_moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Another deadline, or another promised finish by more than a second."""
    for name in ("deadline_at", "promised_p90_at"):
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and abs(new - old) > 1.0:
            return True
    return False


def message_digest(view: Mapping[str, Any]) -> str:
    """The fields of a view that are worth a message, as text: equal digests need no message."""
    fields = ("verdict", "reason_code", "deadline_at", "outcome", "broken", "finished_at")
    stall = [view["stalled_since"]] if view.get("stalled_since") is not None else []
    return json.dumps([view[name] for name in fields] + stall)
