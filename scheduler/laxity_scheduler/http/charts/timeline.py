"""Jobs and GPUs on one time axis, as columns: what the page draws.

Entry i of each column is job i. Instants are seconds after `base_at`, to a tenth. The past comes from
the views, which the store keeps over a restart; the future from the reservations of promises.

    ran  = [at, workers, at, workers, ...]    widths until now; 0 workers for a stop
    will = [until, workers, ...]              reserved widths from now on

Groups have columns of the same form; a job's `group` is the id of its group among them.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import orjson

from laxity.api.job_view import job_view
from laxity.api.status_text import deadline_status, state_words
from laxity_scheduler.groups.group import Group
from laxity_scheduler.http.charts.timeline_groups import group_counts, group_row, lane_of
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.views.view_fields import Json, finite_or_none
from laxity_scheduler.store.capacity_history import Capacity

INSTANTS: Final = (
    "submitted_at", "deadline_at", "p50_at", "p90_at", "given_p90_at", "expected_start_at", "finished_at",
)  # fmt: skip
PLAIN: Final = (
    "id", "class", "model", "state", "verdict", "workers", "epochs", "epochs_done", "borrowed_gpus",
)  # fmt: skip
MADE: Final = ("standing", "words", "offers", "gpus_per_worker")
OF_GROUPS: Final = ("id", "class", "state", "verdict", "workers", "standing", "words", "offers")
Widths = Sequence[Sequence[float]]  # (until, workers), one after the other


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """The span that is looked at, and which namespaces are seen in it."""

    from_at: float
    to_at: float
    may_see: Callable[[str], bool]

    def shows(self, view: Mapping[str, Any]) -> bool:
        """Whether the job is of these namespaces, and was there in this span."""
        since, until = view["submitted_at"] or 0.0, view["finished_at"] or math.inf
        in_span = since <= self.to_at and until >= self.from_at
        return in_span and self.may_see(view["id"].partition("/")[0])

    def shows_refused(self, group: Group) -> bool:
        """Whether the group was refused in this span."""
        return group.state == "refused" and self.from_at <= group.submitted_at <= self.to_at


class TimelineRows:
    """The part of a job that only its view decides, made once for each view."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Json, Json]] = {}

    def timeline(
        self,
        views: Iterable[Json],
        groups: Mapping[str, Callable[[], Json]],
        state: ClusterState,
        window: TimelineSpan,
        capacity: Sequence[Capacity],
        *,
        refused: Collection[str],
    ) -> Json:
        """Columns of all jobs in the window and their groups, the GPUs that there are, and a revision of all.

        `groups` has the view of each group by its lane, made for those that are shown: groups of jobs
        in the window, and the `refused` ones, which have none.
        """
        every = list(views)
        shown = [view for view in every if window.shows(view)]
        base_at = math.floor(window.from_at)
        if len(self._rows) > 2 * len(every):
            self._rows = {}
        rows = [self._row(view) for view in shown]
        columns = {name: [row[name] for row in rows] for name in (*PLAIN, *MADE)}
        columns |= _instant_columns(shown, [_reserved(view, state) for view in shown], base_at)
        columns["group"] = [lane if (lane := lane_of(view)) in groups else "" for view in shown]
        lanes = {lane: groups[lane]() for lane in sorted({*columns["group"], *refused} - {""})}
        answer: Json = {
            "base_at": base_at,
            "jobs": columns,
            "groups": _group_columns(lanes, every, state, base_at),
            "cluster": _cluster_columns(state, window),
            "capacity": {
                "at": [_shift(row.at, base_at) for row in capacity],
                "gpus": [row.gpus for row in capacity],
                "lent": [row.lent for row in capacity],
            },
        }
        revision = blake2b(orjson.dumps(answer), digest_size=8).hexdigest()
        return answer | {"revision": revision}

    def _row(self, view: Json) -> Json:
        last = self._rows.get(view["uid"])
        if last is None or last[0] is not view:
            job = job_view(view)
            row = {name: view.get(name) for name in PLAIN}  # older stores lack some
            row |= {"standing": deadline_status(job), "words": state_words(job)}
            row |= {"offers": len(view["offers"]) if view["state"] == "refused" else 0}
            row |= {"gpus_per_worker": view.get("gpus_per_worker") or 1}
            last = self._rows[view["uid"]] = (view, row)
        return last[1]


def _shift(at: float | None, base_at: float) -> float | None:
    at = finite_or_none(at)
    return None if at is None else round(at - base_at, 1)


def _shift_pairs(pairs: Iterable[Iterable[float]], base_at: float) -> list[float | None]:
    return [number for at, workers in pairs for number in (_shift(at, base_at), int(workers))]


def _instant_columns(rows: Sequence[Json], reserved: Sequence[Widths], base_at: float) -> Json:
    """What of these views, or rows like them, stands on the time axis."""
    columns: Json = {name: [_shift(row.get(name), base_at) for row in rows] for name in INSTANTS}
    columns["ran"] = [_shift_pairs(row["width_history"], base_at) for row in rows]
    columns["will"] = [_shift_pairs(widths, base_at) for widths in reserved]
    return columns


def _group_columns(
    lanes: Mapping[str, Json], views: Iterable[Json], state: ClusterState, base_at: float
) -> Json:
    """Columns of these groups, with all their jobs: also those that ended before the window."""
    parts: dict[str, list[Json]] = {lane: [] for lane in lanes}
    for view in views:
        if (lane := lane_of(view)) in parts:
            parts[lane].append(view)
    rows = []
    for lane, jobs in parts.items():
        row = group_row(lanes[lane], jobs, [_reserved(view, state) for view in jobs], state.now)
        job = job_view(row)
        is_refused = job.state == "refused"
        counted = () if is_refused else (group_counts(lanes[lane], jobs),)
        words = ", ".join((state_words(job), *counted))
        offers = len(lanes[lane]["offers"]) if is_refused else 0
        rows.append(row | {"standing": deadline_status(job), "words": words, "offers": offers})
    columns: Json = {name: [row[name] for row in rows] for name in OF_GROUPS}
    return columns | _instant_columns(rows, [row["will"] for row in rows], base_at)


def _reserved(view: Json, state: ClusterState) -> Widths:
    """What a promise reserves from now on; [] for a job without one, or that has ended."""
    row: Job | None = state.by_id.get(view["id"])
    if row is None or row.promise is None or view["finished_at"] is not None:
        return []
    return [run for run in row.promise if run[0] > state.now]


def _cluster_columns(state: ClusterState, window: TimelineSpan) -> Json:
    """Nodes with their GPUs and the jobs on them; jobs of other namespaces are not named."""
    nodes = state.nodes
    held: dict[str, set[str]] = {node.id: set() for node in nodes}
    for job in state.jobs:
        if window.may_see(job.namespace):
            for node in job.nodes:
                held.setdefault(node, set()).add(job.id)
    return {
        "held": [sorted(held[node.id]) for node in nodes],
        "node": [node.id for node in nodes],
        "gpus": [node.gpus for node in nodes],
        "free": [max(0, node.free_gpus) for node in nodes],
        "pool": [node.pool for node in nodes],
        "gpu_type": [node.gpu_type for node in nodes],
        "total_gpus": state.total_gpus,
        "free_gpus": state.free_gpus,
    }
