"""How a job came out, and what became of its promise."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json

FATES: Final = ("kept", "broken", "open", "failed", "cancelled")  # of a promise


def outcome_of(view: Mapping[str, Any]) -> str:
    """How a job came out; "" while it goes on. Kept means finished at or before the deadline."""
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
    """Numbers of promises by what became of them; `given` is their sum.

    `failed` runs ended by an error of their own, and `cancelled` ones were stopped by somebody. They
    neither kept nor broke their promise, unless the deadline had passed before.
    """
    fates = Counter(_fate_of_promise(view) for view in all_views if view["verdict"] == "promised")
    return {"given": fates.total(), **{fate: fates[fate] for fate in FATES}}


def _fate_of_promise(view: Mapping[str, Any]) -> str:
    """What became of a promise; a broken one stays broken, whatever came after."""
    if view["broken"]:
        return "broken"
    outcome_word = str(view["outcome"] or "open")
    return outcome_word if outcome_word in FATES else "kept"  # its deadline was taken away


def is_promise_broken(view: Mapping[str, Any], now: float) -> bool:
    """Whether a promise is broken: its deadline passed before the job finished.

    A run that its user cancelled, or whose own code raised, breaks no promise.
    """
    if view["verdict"] != "promised" or view["deadline_at"] is None:
        return False
    if view["state"] in ("cancelled", "failed"):
        return False
    ended_at = view["finished_at"] if view["state"] == "finished" else now
    return bool(ended_at > view["deadline_at"])


def is_promise_in_danger(view: Mapping[str, Any]) -> bool:
    """Whether a promise is expected to be broken, and is not yet."""
    if view["verdict"] != "promised" or view["state"] in TERMINAL_STATES or view["broken"]:
        return False
    return view["p90_at"] is None or bool(view["p90_at"] > view["deadline_at"])


def is_over(view: Mapping[str, Any]) -> bool:
    """Whether nothing more happens to this Job; a refused one may still ask again."""
    return view["finished_at"] is not None


def laxity_s(view: Mapping[str, Any], now: float) -> float | None:
    """Seconds between the P90 finish and the deadline; null without either, or after the end."""
    if view["deadline_at"] is None or view["p90_at"] is None or view["state"] in TERMINAL_STATES:
        return None
    return float(view["deadline_at"] - max(view["p90_at"], now))
