"""Groups as rows of the page's timeline: their jobs' widths summed, and the deadline of the whole.

A group's id here is that of its lane and ends with "/": a job may have the same name.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json

Step = Sequence[float]  # an instant, and the workers from then on


def lane_id(group_id: str) -> str:
    """The id of a group's lane."""
    return f"{group_id}/"


def lane_of(view: Mapping[str, Any]) -> str:
    """The lane of the job's group; "" without one."""
    group = view.get("group")  # older stores have none
    return lane_id(f"{view['id'].partition('/')[0]}/{group}") if group else ""


def group_row(
    group: Mapping[str, Any], jobs: Sequence[Json], planned: Iterable[Sequence[Step]], now: float
) -> Json:
    """A group like the view of a job.

    `planned` are the widths that are reserved for its jobs, as (until, workers).
    """
    due_at, ended_at = group["deadline_at"], group["finished_at"]
    workers = sum(view["workers"] or 0 for view in jobs)
    ran = [(*view["width_history"], *_end(view)) for view in jobs]
    will = [_from_starts(now, widths) for widths in planned]
    state = "running" if workers else "queued"
    return {
        "id": lane_id(group["id"]),
        "class": group["class"],
        "state": state if group["state"] == "active" else group["state"],
        "verdict": group["verdict"],
        "broken": group["verdict"] == "promised" and due_at is not None and due_at < now,
        "submitted_at": group["submitted_at"],
        "deadline_at": due_at,
        "finished_at": ended_at,
        "p90_at": group.get("p90_at") if ended_at is None else None,
        "workers": workers,
        "width_history": _summed(ran),
        "will": _to_ends(_summed(will)),
    }


def group_counts(group: Mapping[str, Any], jobs: Sequence[Json]) -> str:
    """Return "3 of 5 jobs ended", of those that are declared or there."""
    declared = sum(step["count"] for step in group["steps"])
    ended = sum(view["state"] in TERMINAL_STATES for view in jobs)
    return f"{ended} of {max(declared, len(jobs))} jobs ended"


def _end(view: Mapping[str, Any]) -> list[Step]:
    return [] if view["finished_at"] is None else [(view["finished_at"], 0)]


def _from_starts(now: float, widths: Sequence[Step]) -> list[Step]:
    """(until, workers) as (from, workers), the last with none."""
    starts = [now, *(until for until, _ in widths)]
    return list(zip(starts, [*(workers for _, workers in widths), 0], strict=True))


def _to_ends(steps: Sequence[Step]) -> list[Step]:
    return [(end[0], begin[1]) for begin, end in pairwise(steps)]


def _summed(histories: Iterable[Iterable[Step]]) -> list[Step]:
    """The workers of all together."""
    changes: dict[float, float] = {}
    for history in histories:
        before = 0.0
        for at, workers in history:
            changes[at] = changes.get(at, 0.0) + workers - before
            before = workers
    total = 0.0
    return [(at, total := total + changes[at]) for at in sorted(changes)]
