"""What changed between two snapshots, as JSON, and the second snapshot from the first and that.

Ten thousand jobs are megabytes, and a cycle changes a few of them. A difference holds the changed
rows, the ids that went, and an order only where rows cannot be put back in the order they had.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from laxity_scheduler.model.cluster import ClusterState, Node
from laxity_scheduler.model.job import Job
from laxity_scheduler.store.codec import from_json, load_job, load_node, to_json

Row = Job | Node
STATED_WHOLE: Final = ("budgets", "sets", "quotas", "inference", "reserved")


def snapshot_difference(old: ClusterState, new: ClusterState) -> dict[str, Any]:
    """JSON of what differs in `new`; `now` and `cycle` are always included."""
    changes: dict[str, Any] = to_json(ClusterState(now=new.now, nodes=(), jobs=(), cycle=new.cycle))
    del changes["nodes"], changes["jobs"]
    for name in ("nodes", "jobs"):
        rows = _row_difference(getattr(old, name), getattr(new, name))
        if rows:
            changes[name] = rows
    if old.holds != new.holds:
        changes["holds"] = [to_json(hold) for hold in new.holds]
    for name in STATED_WHOLE:
        if getattr(old, name) != getattr(new, name):
            changes[name] = to_json(replace(new, nodes=(), jobs=(), holds=())).get(name)
    return changes


def apply_difference(old: ClusterState, changes: dict[str, Any]) -> ClusterState:
    """The new snapshot of a difference; unchanged rows are shared with `old`."""
    names = ("holds", *STATED_WHOLE)
    stated = {name: changes[name] for name in names if changes.get(name) is not None}
    cycle = changes.get("cycle", 0)
    shell: ClusterState = from_json(
        ClusterState, {"now": changes["now"], "nodes": [], "jobs": [], "cycle": cycle, **stated}
    )
    return replace(
        shell,
        nodes=_apply_row_difference(old.nodes, changes.get("nodes", {}), load_node),
        jobs=_apply_row_difference(old.jobs, changes.get("jobs", {}), load_job),
        memory=old.memory,
        **{name: getattr(old, name) for name in names if name not in changes},
    )


def _row_difference(old: Sequence[Row], new: Sequence[Row]) -> dict[str, Any]:
    if old is new:
        return {}
    old_rows = {row.id: row for row in old}
    changed = [
        row for row in new if (old_row := old_rows.get(row.id)) is not row and old_row != row
    ]
    remaining_ids = {row.id for row in new}
    gone = [row.id for row in old if row.id not in remaining_ids]
    changes: dict[str, Any] = {}
    if changed:
        changes["rows"] = [to_json(row) for row in changed]
    if gone:
        changes["gone"] = gone
    order = [row.id for row in new]
    if order != _natural_order(old, gone, [row.id for row in changed]):
        changes["order"] = order
    return changes


def _natural_order(old: Sequence[Row], gone: Sequence[str], changed: Sequence[str]) -> list[str]:
    """The order of rows that a difference need not state: as before, new rows last."""
    gone_ids = frozenset(gone)
    old_ids = [row.id for row in old if row.id not in gone_ids]
    old_id_set = frozenset(old_ids)
    return old_ids + [name for name in changed if name not in old_id_set]


def _apply_row_difference(
    old: tuple[Any, ...], changes: dict[str, Any], load: Callable[[Any], Any]
) -> tuple[Any, ...]:
    if not changes:
        return old
    changed = {row.id: row for row in map(load, changes.get("rows", ()))}
    rows = {row.id: row for row in old} | changed
    order = changes.get("order") or _natural_order(old, changes.get("gone", ()), list(changed))
    return tuple(rows[name] for name in order)
