"""What is kept of a job's view: its row in the store, and fields that one view takes from the last.

A promise is judged by what was predicted first, so these fields do not move with later forecasts.
"""

from typing import Final

from laxity_scheduler.service.views.promise_outcome import is_over, is_promise_in_danger
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.simulated.told_finish import ToldFinish
from laxity_scheduler.store.codec import json_bytes
from laxity_scheduler.store.tables import SavedView, storable_text

# Readers do not see these.
INTERNAL_FIELDS: Final = (
    "first_p50_at", "first_p90_at", "first_run_s", "queue_at", "queue_s", "told", "danger", "has_stalled", "released", "cancelled",
)  # fmt: skip


def p90_when_given(view: Json, before: Json | None) -> float | None:
    """The P90 finish at which the promise in force was given, however its forecast moves since."""
    if view["verdict"] != "promised":
        return None
    is_same = before is not None and before["deadline_at"] == view["deadline_at"]
    given_at: float | None = before.get("given_p90_at") if before and is_same else None
    latest: float | None = view["promised_p90_at"]
    return latest if given_at is None else given_at


def with_first_prediction(
    view: Json, now: float, told: ToldFinish | None = None, *, awaited: bool = False
) -> Json:
    """The view with its first prediction and whether its promise is in danger.

    That is what the job was told first of its finish; `awaited`: it is still being worked out.
    """
    judged = view["verdict"] in ("promised", "forecast")
    if judged and view.get("first_run_s") is None and view["p50_at"] is not None:
        run_s = view["p50_at"] - max(now, view["expected_start_at"] or now)
        # The plan of a group and the wait for GPUs may disagree on when it starts.
        view["first_run_s"] = run_s if run_s > 0.0 else None
    if view["first_p90_at"] is None and (told is not None or (judged and not awaited)):
        p50_at, p90_at = (view["p50_at"], view["p90_at"]) if told is None else told.finite
        view |= {"first_p50_at": p50_at, "first_p90_at": p90_at}
        if told is not None:
            view |= {"queue_at": told.at, "queue_s": told.queue_s}
    view["finish_pending"] = judged and awaited and not is_over(view)
    has_stalled = bool(view.get("has_stalled") or view.get("stalled_since") is not None)
    return view | {"danger": is_promise_in_danger(view), "has_stalled": has_stalled}


def row_of_view(view: Json) -> SavedView:
    """The view as the store keeps it; TypeError if it cannot be serialised."""
    return SavedView(
        uid=view["uid"],
        job=storable_text(view["id"]),
        namespace=storable_text(view["id"].partition("/")[0]),
        state=view["state"],
        outcome=view["outcome"],
        submitted_at=view["submitted_at"] or 0.0,
        finished_at=view["finished_at"],
        view=json_bytes(view),
    )
