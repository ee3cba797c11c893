"""The nodes as workers see them that request more than GPUs.

GPUs of a node count for a worker only as far as workers of its shape fit there. So each shape has a view
of the nodes, with as many GPUs free as such workers can take, which follows whatever is taken.
"""

from collections import Counter
from collections.abc import Sequence

from laxity_scheduler.capacity import placement
from laxity_scheduler.capacity.placement import Nodes
from laxity_scheduler.model.job import (
    Amounts,
    Needs,
    NodeRoom,
    WorkerShape,
    find_scarce,
    spend,
    workers_that_fit,
)


class ShapeViews:
    """What n nodes have free beside GPUs, by node number; () where there is plenty of it everywhere."""

    def __init__(self, rooms: Sequence[Amounts | None] = ()) -> None:
        self._rooms = list(rooms)
        self._views: dict[WorkerShape, Nodes] = {}

    def copy(self) -> "ShapeViews":
        return ShapeViews(self._rooms)

    def matter(self, needs: Sequence[Needs]) -> bool:
        """Whether any of these needs may be scarcer than GPUs."""
        return bool(self._rooms) and any(needs)

    def of(self, nodes: Nodes, shape: WorkerShape) -> Nodes:
        """The nodes with as many GPUs free as workers of this shape can take."""
        if not (self._rooms and shape.needs):
            return nodes
        if shape not in self._views:
            free = [self._free_for(nodes, number, shape) for number in range(len(nodes.free))]
            self._views[shape] = placement.count_nodes(free, nodes.cell, levels=nodes.levels)
        return self._views[shape]

    def drop(self) -> None:
        """Much has changed: views are made anew."""
        self._views.clear()

    def note_change(self, nodes: Nodes, number: int) -> None:
        """What is free on a node has changed."""
        for shape, view in self._views.items():
            more = self._free_for(nodes, number, shape) - view.free[number]
            if more:
                placement.change_free(view, number, more)

    def note_taken(self, nodes: Nodes, taken: Sequence[int], shape: WorkerShape) -> None:
        """Workers have taken GPUs of these node numbers on the view of their shape."""
        if not self._rooms:
            return
        is_view = self.of(nodes, shape) is not nodes
        for number, workers in Counter(taken).items():
            self.spend(number, shape.needs, workers)
            if is_view:
                placement.change_free(nodes, number, -workers * shape.gpus)
            self.note_change(nodes, number)

    def spend(self, number: int, needs: Needs, workers: int) -> None:
        """So many workers more are on a node; fewer than 0 have left it."""
        amounts = self._rooms[number] if self._rooms and needs else None
        if amounts is not None:
            self._rooms[number] = spend(amounts, needs, workers)

    def find_scarce(self, nodes: Nodes, number: int, shape: WorkerShape, workers: int) -> str:
        """What a node has too little of for so many workers; "" if there is enough of all but GPUs."""
        return find_scarce(self._room_on(nodes, number), shape, workers) if shape.needs else ""

    def _room_on(self, nodes: Nodes, number: int) -> NodeRoom:
        return NodeRoom(nodes.free[number], self._rooms[number] if self._rooms else None)

    def _free_for(self, nodes: Nodes, number: int, shape: WorkerShape) -> int:
        return workers_that_fit(self._room_on(nodes, number), shape) * shape.gpus
