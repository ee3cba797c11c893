"""How many accelerators each machine is counted on for, in the moments when it lists none of them.

A device plugin that restarts takes all of a machine's accelerators off its list, for seconds. Pods
run on meanwhile, and none can start. So a machine that listed some is counted on for as many for a
minute: promises rest on them, and nobody takes them. Fewer than before, but not none, is what the
plugin has found out, and counts at once.
"""

from collections.abc import Mapping
from typing import Final

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.accelerator_nodes import count_capacity, count_offered
from laxity_scheduler.model.job import FOREVER

RELIST_S: Final = 60.0  # so long a restarted device plugin may take
NONE: Final[Mapping[str, int]] = {}


class AcceleratorCounts:
    """Accelerators of `machines` by resource, as they are listed or are expected to be again."""

    def __init__(self, machines: Mapping[str, Json]) -> None:
        self._machines = machines
        self._nodes: dict[str, Json] = {}  # as they were looked at
        self._counts: dict[str, dict[str, int]] = {}  # by machine and resource, none that is 0
        self._unlisted_at: dict[str, dict[str, float]] = {}  # since when a resource is not listed
        self.changed: set[str] = set()

    @property
    def due_at(self) -> float:
        """When a machine is no longer counted on for what it does not list."""
        return min(
            (
                since + RELIST_S
                for name, times in self._unlisted_at.items()
                for resource, since in times.items()
                if resource in self._counts[name]
            ),
            default=FOREVER,
        )

    def counts(self, machine: str) -> Mapping[str, int]:
        return self._counts.get(machine, NONE)

    def look(self, now: float) -> None:
        """Look at machines that changed, or whose time may be over; note whose counts `changed`."""
        self.changed = set()
        for name in self._nodes.keys() - self._machines.keys():
            self._forget(name)
        for name, node in self._machines.items():
            if self._nodes.get(name) is not node or name in self._unlisted_at:
                self._look_at(name, node, now)

    def _look_at(self, name: str, node: Json, now: float) -> None:
        last = self._nodes.get(name, node)
        if json_tree.uid_of(last) != json_tree.uid_of(node):
            self._forget(name)
        listed, old = count_offered(node), self._counts.get(name, {})
        expected = {**count_capacity(node), **old}
        times = self._unlisted_at.get(name, {})
        times = {
            resource: times.get(resource, now) for resource in expected if resource not in listed
        }
        awaited = {
            resource: expected[resource]
            for resource, since in times.items()
            if now < since + RELIST_S
        }
        self._nodes[name], self._counts[name] = node, awaited | listed
        if self._counts[name] != old:
            self.changed.add(name)
        if times:
            self._unlisted_at[name] = times
        else:
            self._unlisted_at.pop(name, None)

    def _forget(self, name: str) -> None:
        for table in (self._nodes, self._counts, self._unlisted_at):
            table.pop(name, None)
