"""Which nodes may still come, pool by pool, and how long that takes.

A pool has as many as its setting allows, less those that are there. Jobs that wait for one keep it. A
pool whose nodes did not come in time is not counted on for a while: its capacity may be out.
"""

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Final

from laxity.backoff import Backoff
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.accelerator_nodes import COMING, is_coming, machine_name
from laxity_k8s.objects.node_rows.scaling_pool import ScalingPool
from laxity_k8s.observe.unplaced import Unplaced
from laxity_scheduler.model.cluster import Coming
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.pool_arrivals import Arrival, PoolArrivals
from laxity_scheduler.model.reasons import format_duration, format_utc

BACKOFF: Final = Backoff(first_s=300.0, longest_s=3600.0)
LEARNED_FOR_S: Final = 3600.0  # a node that comes later has come for something else


class _Wait:
    """What is waited for in one pool: `since` when, for how many failures in a row."""

    def __init__(self) -> None:
        self.there: frozenset[str] | None = None  # its nodes at the last look
        self.awaited: list[str] = []
        self.unclaimed = 0  # nodes that have come, and for whom they came is not there yet
        self.since: float | None = None
        self.is_late = self.is_shut = False
        self.failures = 0
        self.failed_at = 0.0
        self.retry_at = 0.0  # not counted on before
        self.problem = ""  # why it is not

    def begin(self, since: float) -> None:
        """Starts from before the last failure belong to it, however many they are."""
        if since != self.since:
            self.since, self.is_late = since, since <= self.failed_at


class ScalingPools:
    """`machines` are the cluster's nodes with those that may come; `arrivals` is what was learned."""

    def __init__(self, pools: Sequence[ScalingPool], nodes: MutableMapping[str, Json]) -> None:
        self._pools, self._nodes = {pool.name: pool for pool in pools}, nodes
        self._coming: dict[str, Json] = {}
        self._moved: dict[str, list[str]] = {}  # awaited, and probably there by another name
        self._waits = {pool.name: _Wait() for pool in pools}
        self.machines = ChainMap(self._coming, nodes) if pools else nodes
        self.arrivals = PoolArrivals()
        self.due_at = FOREVER  # when a pool is counted on again, or late

    def __bool__(self) -> bool:
        return bool(self._pools)

    def coming(self, node: str) -> Coming | None:
        """When a node that may come does; None for one that is there, or of a pool that is no more."""
        pool = self._pools.get(node.rpartition(COMING)[0]) if is_coming(node) else None
        return None if pool is None else self.arrivals.expect(pool.name, pool.within_s)

    def coming_for(self, nodes: Iterable[str]) -> Coming | None:
        """When all of these nodes are there; None if they are."""
        comings = [coming for name in nodes if (coming := self.coming(machine_name(name)))]
        return max(comings, key=lambda coming: coming.within_s, default=None)

    def look(self, started: Iterable[Job], now: float) -> bool:
        """Look at nodes that came, and at who waits for some; whether other nodes may come now."""
        awaited: dict[str, list[str]] = {}
        since: dict[str, float] = {}
        for row in started:
            for node in {machine_name(name) for name in row.nodes if is_coming(name)}:
                name = node.rpartition(COMING)[0]
                awaited.setdefault(name, []).append(node)
                since[name] = min(since.get(name, FOREVER), row.resumed_at or now)
        self.due_at = FOREVER
        names: dict[str, Json] = {}
        for pool in self._pools.values():
            mine = sorted(set(awaited.get(pool.name, ())))
            self._watch(pool, since.get(pool.name), mine, now)
            names |= dict(self._build_nodes(pool, mine, now))
        if names == self._coming:
            return False
        self._coming.clear()
        self._coming.update(names)
        return True

    def _watch(
        self, pool: ScalingPool, since: float | None, awaited: list[str], now: float
    ) -> None:
        """Learn from nodes that came, and note that some did not in time."""
        wait = self._waits[pool.name]
        there = frozenset(name for name, node in self._nodes.items() if pool.holds(node))
        came = 0 if wait.there is None else len(there - wait.there)
        bound = len(set(wait.awaited).difference(awaited))
        wait.unclaimed = min(max(0, wait.unclaimed + came - bound), len(awaited))
        wait.there, wait.awaited = there, awaited
        if came and wait.since is not None:
            self.arrivals.add(Arrival(pool.name, now, now - wait.since))
            wait.since, wait.is_late, wait.failures, wait.retry_at = None, False, 0, 0.0
            return
        if since is not None:
            wait.begin(since)
        elif not wait.is_late or now - (wait.since or 0.0) > LEARNED_FOR_S:
            wait.since = None  # nobody waits any more
        if wait.since is None:
            return
        within_s = self.arrivals.expect(pool.name, pool.within_s).within_s
        late_at = wait.since + within_s
        if late_at <= now and not wait.is_late:
            wait.is_late, wait.failures, wait.failed_at = True, wait.failures + 1, now
            wait.retry_at = now + BACKOFF.delay_s(wait.failures)
            wait.problem = (
                f"pool {pool.name}: no node came within {format_duration(within_s)}; "
                f"it is counted on again at {format_utc(wait.retry_at)}"
            )
        self.due_at = min(self.due_at, late_at if late_at > now else FOREVER)

    def describe_late(self) -> Iterator[tuple[Json, str]]:
        """Pools that are not counted on for a while: a node of each, and why."""
        for pool in self._pools.values():
            if self._waits[pool.name].is_shut:
                yield pool.build_node(1), self._waits[pool.name].problem

    def _build_nodes(
        self, pool: ScalingPool, awaited: list[str], now: float
    ) -> Iterator[tuple[str, Json]]:
        """Those that somebody waits for, and others up to as many as may come."""
        wait = self._waits[pool.name]
        most = pool.nodes - len(wait.there or ())
        self._moved[pool.name] = awaited[: max(wait.unclaimed, len(awaited) - most)]
        wait.is_shut = wait.retry_at > now
        if wait.is_shut:
            self.due_at = min(self.due_at, wait.retry_at)
            most = 0
        for number in range(1, pool.nodes + 1):
            name = f"{pool.name}{COMING}{number}"
            if name in awaited or most > len(awaited):
                most -= name not in awaited
                yield name, pool.build_node(number, is_shut=wait.is_shut)

    def find_moved(self, sent: Mapping[str, int]) -> Iterator[Unplaced]:
        """GPUs that are awaited though their nodes have come: their pods are about to be there."""
        for pool, names in self._moved.items():
            gpus: Counter[str] = Counter()
            for site, count in sent.items():
                if count > 0 and machine_name(site) in names:
                    gpus[site.partition("/")[2]] += count
            for resource, count in gpus.items():
                there = self._waits[pool].there or frozenset()
                sites = [f"{name}/{resource}" if resource else name for name in there]
                yield Unplaced(count, frozenset(sites), elsewhere=False)
