"""What machines have free beside accelerators, for worlds in which that can be scarcer than these.

Where each worker asks for no larger share of a machine's CPUs, memory and all else than of its
accelerators, accelerators are used up first, whatever the mix: nothing else need be counted, and it
is not, so that plans stay quick.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.pod_requests import amounts_of
from laxity_k8s.observe.accelerator_counts import AcceleratorCounts
from laxity_k8s.observe.entries import GroupEntry
from laxity_scheduler.model.job import WorkerShape, amount_of

Taken = defaultdict[str, Counter[str]]  # amounts by resource, by machine


class NodeRooms:
    """What groups take of `machines`. `matters`: whether anything but accelerators can be scarce."""

    def __init__(self, machines: Mapping[str, Json], accelerators: AcceleratorCounts) -> None:
        self._machines, self._accelerators = machines, accelerators
        self._taken: Taken = defaultdict(Counter)
        self._by_others: Taken = defaultdict(Counter)  # of this, by groups without a row
        self._shapes: Counter[WorkerShape] = Counter()  # of rows
        self._checked: frozenset[WorkerShape] = frozenset()
        self.matters = False

    def add(self, entry: GroupEntry) -> None:
        self._count(entry, 1)

    def remove(self, entry: GroupEntry) -> None:
        self._count(entry, -1)

    def _count(self, entry: GroupEntry, sign: int) -> None:
        for (machine, resource), amount in entry.requested.items():
            self._taken[machine][resource] += sign * amount
            if entry.row is None:
                self._by_others[machine][resource] += sign * amount
        if entry.row is not None:
            self._shapes[WorkerShape(entry.row.gpus_per_worker, entry.needs)] += sign

    def look(self, moved: Iterable[str]) -> bool:
        """Whether it `matters` now if it did not before, or the other way; `moved` machines changed."""
        shapes = frozenset(shape for shape, count in self._shapes.items() if count > 0)
        is_same = shapes == self._checked and not self.matters
        self._checked, before = shapes, self.matters
        among = [name for name in moved if name in self._machines] if is_same else self._machines
        self.matters = any(self._is_scarce_on(name, shapes) for name in among)
        return self.matters != before

    def _is_scarce_on(self, machine: str, shapes: Iterable[WorkerShape]) -> bool:
        gpus = sum(self._accelerators.counts(machine).values())
        room = self.room(machine) if gpus else None
        return room is not None and any(
            amount * gpus > amount_of(room, resource) * shape.gpus
            for shape in shapes
            for resource, amount in shape.needs
        )

    def room(self, machine: str) -> dict[str, int] | None:
        """What workers may request of a machine in all; None: all they like."""
        return _without(amounts_of(self._machines[machine]), self._by_others.get(machine, {}))

    def free_room(self, machine: str) -> dict[str, int] | None:
        """What of it is free."""
        return _without(amounts_of(self._machines[machine]), self._taken.get(machine, {}))


def _without(amounts: Mapping[str, int] | None, taken: Mapping[str, int]) -> dict[str, int] | None:
    if amounts is None:
        return None
    less = {name: amount_of(amounts, name) - amount for name, amount in taken.items() if amount}
    return {**amounts, **less}
