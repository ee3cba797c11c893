"""How many GPUs there were, and how many of them inference had lent, over time.

They are read from the journal's full snapshots, each once, and from the snapshots that are asked about.
After a restart a change stands at the first full snapshot after it, at most a hundred cycles late.
"""

from threading import Lock
from typing import Any, NamedTuple

import orjson

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.store.store import Store


class Capacity(NamedTuple):
    """From `at` on, in POSIX seconds: GPUs in all, and those of nodes that inference lends."""

    at: float
    gpus: int
    lent: int


class CapacityHistory:
    """The changes of capacity in a store's journal. Safe for threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, Lock()
        self._changes: list[Capacity] = []
        self._last_cycle = 0

    def until(self, state: ClusterState) -> list[Capacity]:
        """All changes up to this snapshot, in order."""
        with self._lock:
            for row in self._store.iter_cycles(self._last_cycle, full=True):
                if row.cycle > self._last_cycle:
                    nodes = orjson.loads(row.state)["nodes"]
                    pairs = [(node["gpus"], node.get("pool", "training")) for node in nodes]
                    _add(self._changes, _capacity(row.at, pairs))
                    self._last_cycle = row.cycle
            pairs = [(node.gpus, node.pool) for node in state.nodes]
            _add(self._changes, _capacity(state.now, pairs))
            return list(self._changes)


def _capacity(at: float, nodes: list[tuple[int, Any]]) -> Capacity:
    gpus = sum(gpus for gpus, pool in nodes if pool != "inference")
    return Capacity(at, gpus, sum(gpus for gpus, pool in nodes if pool == "loaned"))


def _add(changes: list[Capacity], capacity: Capacity) -> None:
    if not changes or changes[-1][1:] != capacity[1:]:
        changes.append(capacity)
