"""GPUs that a job has borrowed from inference: now, and how many GPU-hours in all.

A view keeps what was borrowed until the number last changed, and since when it is what it is: so it
changes only when the number does.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from laxity_scheduler.model.job import HOUR_S, Job
from laxity_scheduler.service.views.view_fields import Json

NOTHING_BORROWED: Final[Mapping[str, Any]] = {
    "borrowed_gpus": 0,
    "borrowed_gpu_s": 0.0,
    "borrowed_at": None,
}


def count_borrowed(row: Job | None, lent: Collection[str]) -> int:
    """GPUs of its workers on lent nodes."""
    if row is None or not lent:
        return 0
    return sum(name in lent for name in row.nodes) * row.gpus_per_worker


def borrowing_fields(view: Mapping[str, Any], gpus: int, now: float) -> Json:
    """The three fields of a view, of which the last is known, once so many GPUs are borrowed."""
    last = {name: view.get(name, value) for name, value in NOTHING_BORROWED.items()}
    if last["borrowed_gpus"] == gpus:
        return last
    spent_gpu_s = last["borrowed_gpu_s"] + _gpu_s_since(last, now)
    return {"borrowed_gpus": gpus, "borrowed_gpu_s": spent_gpu_s, "borrowed_at": now}


def count_borrowed_gpu_h(view: Mapping[str, Any], now: float) -> float:
    """GPU-hours borrowed up to now."""
    return float((view.get("borrowed_gpu_s", 0.0) + _gpu_s_since(view, now)) / HOUR_S)


def _gpu_s_since(view: Mapping[str, Any], now: float) -> float:
    since = view.get("borrowed_at")
    return 0.0 if since is None else float(view["borrowed_gpus"] * max(0.0, now - since))
