"""The nodes of the snapshot: a machine is read anew when it changed, or the GPUs busy on it did.

GPUs that are busy nobody knows where are set aside at the end.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects.node_rows.accelerator_nodes import machine_name, resource_of, site_name
from laxity_k8s.objects.node_rows.nodes import is_cordoned, loss_instant, node_rows
from laxity_k8s.observe.accelerator_counts import AcceleratorCounts
from laxity_k8s.observe.entries import GroupEntry, find_unplaced
from laxity_k8s.observe.node_rooms import NodeRooms
from laxity_k8s.observe.scaling_pools import ScalingPools
from laxity_k8s.observe.unplaced import Unplaced, set_aside
from laxity_scheduler.model.cluster import Node
from laxity_scheduler.model.job import FOREVER


class NodeTable:
    """Rows of `machines`, by name, with what the entries of all groups take of them.

    A machine is a site for each kind of its `accelerators`, and for those that workers hold, whatever
    it lists; `rows` has a row for each site. `gpus` counts all of the cluster by resource.
    """

    def __init__(
        self,
        machines: Mapping[str, Json],
        entries: Mapping[str, GroupEntry],
        accelerators: AcceleratorCounts,
        pools: ScalingPools,
    ) -> None:
        self._machines, self._entries, self._accelerators = machines, entries, accelerators
        self._pools = pools
        self.rooms = NodeRooms(machines, accelerators)
        self._guard = Guard("observation")
        self._busy: Counter[str] = Counter()
        self._others: Counter[str] = Counter()  # of these, of groups without a row
        self._held: defaultdict[str, set[str]] = defaultdict(set)  # resources, by machine
        self._sent: Counter[str] = Counter()  # of the busy ones, for workers that are not there yet
        self._unseen: set[str] = set()  # groups with workers that were not seen on any node
        self._over: dict[str, int] = {}  # GPUs more than a node has, for workers not there yet
        self._unplaced: tuple[Unplaced, ...] = ()
        self._moved: set[str] = set()  # sites or machines whose busy GPUs may have changed
        self._nodes: dict[str, Node] = {}  # by site
        self._sites: dict[str, list[str]] = {}  # of each machine
        self._cordoned: set[str] = set()  # machines
        self._gone_at: dict[str, float] = {}  # nodes that are not ready, and when they are lost
        self.rows: tuple[Node, ...] = ()
        self.gpus: Counter[str] = Counter()

    @property
    def due_at(self) -> float:
        """When a node is lost."""
        return min(self._gone_at.values(), default=FOREVER)

    def add(self, group: str, entry: GroupEntry) -> None:
        self.rooms.add(entry)
        self._busy.update(entry.busy)
        self._sent.update(entry.sent)
        self._moved |= entry.busy.keys()
        if entry.row is None:
            self._others.update(entry.busy)
        else:
            for site in entry.busy:
                self._held[machine_name(site)].add(resource_of(site))
        if entry.unseen_gpus:
            self._unseen.add(group)

    def remove(self, group: str, entry: GroupEntry) -> None:
        self.rooms.remove(entry)
        self._busy.subtract(entry.busy)
        self._sent.subtract(entry.sent)
        self._moved |= entry.busy.keys()
        if entry.row is None:
            self._others.subtract(entry.busy)
        self._unseen.discard(group)

    def is_cordoned(self, name: str) -> bool:
        node = self._machines.get(name)
        return node is not None and is_cordoned(node)

    def look(self) -> set[str]:
        """Nodes changed: look at all of them. Groups whose entries depend on what is different.

        Jobs without widths depend on the cluster's size.
        """
        gpus: Counter[str] = Counter()
        for name in self._machines:
            gpus.update(self._accelerators.counts(name))
        self._moved |= self._machines.keys() | self._nodes.keys()
        cordoned = self._look_at_cordoned()
        if gpus == self.gpus:
            return cordoned
        self.gpus = gpus
        return set(self._entries)

    def look_at_rooms(self) -> set[str]:
        """Groups whose rows say, from now on or no longer, what they need beside accelerators."""
        if not self.rooms.look(set(map(machine_name, self._moved))):
            return set()
        self._moved |= self._machines.keys()
        return {group for group, entry in self._entries.items() if entry.row is not None}

    def renew(self, now: float) -> None:
        """Read the machines anew that changed, or that are lost by now."""
        self._moved |= {name for name, instant in self._gone_at.items() if instant <= now}
        for name in set(map(machine_name, self._moved)):
            self._guard(f"node {name}", self._renew_machine, name, now)
        unplaced: tuple[Unplaced, ...] = ()
        if self._over or self._unseen:
            unplaced = tuple(find_unplaced(self._entries, self._unseen, self._over))
        unplaced += tuple(self._pools.find_moved(self._sent))
        if self._moved or unplaced != self._unplaced:
            self._moved, self._unplaced = set(), unplaced
            nodes: Mapping[str, Node] = self._nodes
            nodes = set_aside(nodes, unplaced) if unplaced else nodes
            self.rows = tuple([nodes[name] for name in sorted(nodes)])

    def _look_at_cordoned(self) -> set[str]:
        """Groups with workers on nodes that were cordoned since, or are no longer."""
        cordoned = set(filter(self.is_cordoned, self._machines))
        changed, self._cordoned = cordoned ^ self._cordoned, cordoned
        if not changed:
            return set()
        entries = self._entries.items()
        return {
            group
            for group, entry in entries
            if not changed.isdisjoint(map(machine_name, entry.busy))
        }

    def _renew_machine(self, name: str, now: float) -> None:
        self._gone_at.pop(name, None)
        for table in (self._nodes, self._over):
            for mine in self._sites.get(name, ()):
                table.pop(mine, None)
        self._sites.pop(name, None)
        node = self._machines.get(name)
        rows = [] if node is None else self._read_rows(name, node, now)
        if not rows or node is None:
            return
        self._sites[name] = [row.id for row in rows]
        for row in rows:
            over = max(0, min(self._sent[row.id], -row.free_gpus))
            if over:
                self._over[row.id] = over
            self._nodes[row.id] = replace(row, free_gpus=row.free_gpus + over) if over else row
        if loss_instant(node) < FOREVER:
            self._gone_at[name] = loss_instant(node)

    def _read_rows(self, name: str, node: Json, now: float) -> list[Node]:
        """With a row for what workers hold of it, listed or not."""
        held = [
            resource
            for resource in self._held.get(name, ())
            if self._busy[site := site_name(name, resource)] > self._others[site]
        ]
        counts = {**dict.fromkeys(held, 0), **self._accelerators.counts(name)}
        rows = node_rows(node, self._busy, now=now, counts=counts, others=self._others)
        if (coming := self._pools.coming(name)) is not None:
            rows = [replace(row, pool="coming", coming=coming) for row in rows]
        if not self.rooms.matters:
            return rows
        room, free = self.rooms.room(name), self.rooms.free_room(name)
        return [replace(row, room=room, free_room=free) for row in rows]
