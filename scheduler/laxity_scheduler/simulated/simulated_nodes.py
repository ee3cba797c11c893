"""The nodes of a simulated cluster: GPUs taken and given back, nodes lost and repaired."""

from collections.abc import Iterable, Mapping, Sequence

from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.model.cluster import Node, Pool
from laxity_scheduler.model.job import FOREVER


class SimNodes:
    """Nodes by name; `busy` is (instant, GPUs held) whenever that changed."""

    def __init__(
        self,
        nodes: Sequence[tuple[str, int]],
        now: float,
        products: Mapping[str, str] | None = None,
    ) -> None:
        """`nodes` are (name, GPUs), `products` of these GPUs by node."""
        self._products = products or {}
        self.total = sum(gpus for _, gpus in nodes)
        self.busy: list[tuple[float, int]] = [(now, 0)]
        self._ledger = Ledger([name for name, _ in nodes], [gpus for _, gpus in nodes])
        self._gpus = dict(nodes)
        self._number = {name: number for number, (name, _) in enumerate(nodes)}
        self._nodes = {
            name: Node(name, gpus, gpus, self._products.get(name, "")) for name, gpus in nodes
        }
        self._stale: set[str] = set()
        self._down: set[str] = set()
        self._pools: dict[str, Pool] = {}  # of those that are not for training alone
        self._used_by_inference: Mapping[str, int] = {}
        self._reclaim_at = FOREVER

    @property
    def all_gpus(self) -> int:
        """Those of lost nodes as well."""
        return sum(self._gpus.values())

    def observe_nodes(self) -> tuple[Node, ...]:
        """The nodes that are up, with their free GPUs."""
        for name in self._stale:
            free = self._ledger.free[self._number[name]]
            pool = self._pools.get(name, "training")
            self._nodes[name] = Node(
                name,
                self._gpus[name],
                free - self._used_by_inference.get(name, 0),
                gpu_type=self._products.get(name, ""),
                pool=pool,
                reclaim_at=self._reclaim_at if pool == "loaned" else FOREVER,
            )
        self._stale.clear()
        if not self._down:
            return tuple(self._nodes.values())
        return tuple([node for name, node in self._nodes.items() if name not in self._down])

    def products_on(self, nodes: Iterable[str]) -> set[str]:
        """The products of these nodes."""
        return {self._products.get(name, "") for name in nodes}

    def set_pools(
        self, pools: Mapping[str, Pool], used: Mapping[str, int], reclaim_at: float
    ) -> None:
        """Which nodes are lent or inference's, what inference uses there, and until when it lends."""
        moved = reclaim_at != self._reclaim_at
        before, used_before = self._pools, self._used_by_inference
        self._stale.update(
            [
                name
                for name, pool in pools.items()
                if before.get(name) != pool
                or used_before.get(name) != used.get(name)
                or (moved and pool == "loaned")
            ]
        )
        self._pools, self._used_by_inference = dict(pools), used
        self._reclaim_at = reclaim_at

    def take(self, nodes: Iterable[str], gpus_per_worker: int) -> None:
        """One worker more on each of these nodes."""
        nodes = tuple(nodes)
        self._ledger.take(nodes, gpus_per_worker)
        self._stale.update(nodes)

    def free_on(self, nodes: Iterable[str]) -> dict[str, int]:
        """GPUs that are free on each of these nodes."""
        return {name: self._ledger.free_on(name) for name in nodes}

    def give(self, nodes: Iterable[str], gpus_per_worker: int, now: float) -> None:
        """One worker less on each of these nodes; nothing comes back from a lost one."""
        nodes = [name for name in nodes if name not in self._down]
        self._ledger.give(nodes, gpus_per_worker)
        self._stale.update(nodes)
        self.count(now)

    def count(self, now: float) -> None:
        """Note how many GPUs are held."""
        held = self.total - self._ledger.total_free
        if self.busy[-1][0] == now:
            self.busy[-1] = (now, held)
        else:
            self.busy.append((now, held))

    def set_aside(self, name: str, gpus: int) -> None:
        """Somebody else uses so many GPUs of a node."""
        self._ledger.set_aside(name, gpus)
        self._stale.add(name)

    def lose(self, name: str) -> None:
        """A node goes; its workers are gone already."""
        self._down.add(name)
        self._ledger.set_aside(name, self._gpus[name])
        self.total -= self._gpus[name]

    def repair(self, name: str) -> None:
        self._down.discard(name)
        self.total += self._gpus[name]
        self._ledger.give([name], self._gpus[name])
        self._stale.add(name)
