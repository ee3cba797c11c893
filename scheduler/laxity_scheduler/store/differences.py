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


def difference(old: ClusterState, new: ClusterState) -> dict[str, Any]:
    """JSON of what is not the same in `new`; `now` and `cycle` are always there."""
    found: dict[str, Any] = to_json(ClusterState(now=new.now, nodes=(), jobs=(), cycle=new.cycle))
    del found["nodes"], found["jobs"]
    for name in ("nodes", "jobs"):
        rows = _row_difference(getattr(old, name), getattr(new, name))
        if rows:
            found[name] = rows
    if old.holds != new.holds:
        found["holds"] = [to_json(hold) for hold in new.holds]
    if old.budgets != new.budgets:
        found["budgets"] = _shell(new).get("budgets")
    if old.sets != new.sets:
        found["sets"] = _shell(new).get("sets")
    return found


def _shell(state: ClusterState) -> dict[str, Any]:
    found: dict[str, Any] = to_json(replace(state, nodes=(), jobs=(), holds=()))
    return found


def patched(old: ClusterState, found: dict[str, Any]) -> ClusterState:
    """The snapshot that `difference` was made of, without its unchanged rows being copied."""
    budgets = _said(found, "budgets").budgets if "budgets" in found else old.budgets
    sets = _said(found, "sets").sets if "sets" in found else old.sets
    holds = old.holds
    if "holds" in found:
        holds = tuple(from_json(Hold, hold) for hold in found["holds"])
    now = from_json(float, found["now"])
    return ClusterState(
        now=now,
        nodes=_patched_rows(old.nodes, found.get("nodes", {}), load_node),
        jobs=_patched_rows(old.jobs, found.get("jobs", {}), load_job),
        holds=holds,
        budgets=budgets,
        cycle=from_json(int, found.get("cycle", 0)),
        sets=sets,
    )


def _said(found: dict[str, Any], name: str) -> ClusterState:
    """A snapshot with this field alone."""
    given = {} if found[name] is None else {name: found[name]}
    shell: ClusterState = from_json(ClusterState, {"now": 0, "nodes": [], "jobs": [], **given})
    return shell


def _row_difference(old: Sequence[Row], new: Sequence[Row]) -> dict[str, Any]:
    if old is new:
        return {}
    before = {row.id: row for row in old}
    changed = [row for row in new if (known := before.get(row.id)) is not row and known != row]
    kept = {row.id for row in new}
    gone = [row.id for row in old if row.id not in kept]
    found: dict[str, Any] = {}
    if changed:
        found["rows"] = [to_json(row) for row in changed]
    if gone:
        found["gone"] = gone
    order = [row.id for row in new]
    if order != _natural_order(old, gone, [row.id for row in changed]):
        found["order"] = order
    return found


def _natural_order(old: Sequence[Row], gone: Sequence[str], changed: Sequence[str]) -> list[str]:
    """Where rows stand if nothing is said: where they stood, newcomers behind."""
    without = frozenset(gone)
    kept = [row.id for row in old if row.id not in without]
    known = frozenset(kept)
    return kept + [name for name in changed if name not in known]


def _patched_rows(
    old: tuple[Any, ...], found: dict[str, Any], load: Callable[[Any], Any]
) -> tuple[Any, ...]:
    if not found:
        return old
    changed = {row.id: row for row in map(load, found.get("rows", ()))}
    rows = {row.id: row for row in old} | changed
    order = found.get("order") or _natural_order(old, found.get("gone", ()), list(changed))
    return tuple(rows[name] for name in order)
