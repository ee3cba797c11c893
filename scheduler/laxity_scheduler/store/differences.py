"""What changed between two snapshots, as JSON, and the second snapshot from the first and that.

Ten thousand jobs are megabytes, and a cycle changes a few of them. A difference holds the changed
rows, the ids that went, and an order only where rows cannot be put back in the order they had.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from laxity_scheduler.model.cluster import ClusterState, Hold, Node
from laxity_scheduler.model.job import Job
from laxity_scheduler.store.codec import from_json, load_job, load_node, to_json

Row = Job | Node


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
    if old.budgets != new.budgets:
        changes["budgets"] = _fields_without_rows(new).get("budgets")
    for name in ("sets", "quotas", "inference"):
        if getattr(old, name) != getattr(new, name):
            changes[name] = _fields_without_rows(new).get(name)
    return changes


def _fields_without_rows(state: ClusterState) -> dict[str, Any]:
    changes: dict[str, Any] = to_json(replace(state, nodes=(), jobs=(), holds=()))
    return changes


def apply_difference(old: ClusterState, changes: dict[str, Any]) -> ClusterState:
    """The new snapshot of a difference; unchanged rows are shared with `old`."""
    budgets = _read_field(changes, "budgets").budgets if "budgets" in changes else old.budgets
    sets = _read_field(changes, "sets").sets if "sets" in changes else old.sets
    quotas = _read_field(changes, "quotas").quotas if "quotas" in changes else old.quotas
    inference = (
        _read_field(changes, "inference").inference if "inference" in changes else old.inference
    )
    holds = old.holds
    if "holds" in changes:
        holds = tuple(from_json(Hold, hold) for hold in changes["holds"])
    now = from_json(float, changes["now"])
    return ClusterState(
        now=now,
        nodes=_apply_row_difference(old.nodes, changes.get("nodes", {}), load_node),
        jobs=_apply_row_difference(old.jobs, changes.get("jobs", {}), load_job),
        holds=holds,
        budgets=budgets,
        cycle=from_json(int, changes.get("cycle", 0)),
        sets=sets,
        quotas=quotas,
        inference=inference,
        memory=old.memory,
    )


def _read_field(changes: dict[str, Any], name: str) -> ClusterState:
    """A snapshot that holds this field only."""
    field = {} if changes[name] is None else {name: changes[name]}
    shell: ClusterState = from_json(ClusterState, {"now": 0, "nodes": [], "jobs": [], **field})
    return shell


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
