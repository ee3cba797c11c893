"""Whether jobs fit on nodes of which each may use some: a maximum flow, found path by path."""

from collections.abc import Mapping, Sequence

Demand = tuple[int, frozenset[str]]  # (GPUs, nodes)


def fits(demands: Sequence[Demand], nodes: Mapping[str, int]) -> bool:
    """Whether all demands can be met at once, each on its own nodes (workers of one GPU)."""
    free = dict(nodes)
    on: list[dict[str, int]] = [{} for _ in demands]
    return all(
        _augment(number, demands, free, on)
        for number, (gpus, _) in enumerate(demands)
        for _ in range(gpus)
    )


def _augment(
    number: int, demands: Sequence[Demand], free: dict[str, int], on: list[dict[str, int]]
) -> bool:
    """One GPU more for this demand, others moved out of its way if need be."""
    came: dict[str, tuple[int, str]] = {}
    frontier = [(number, "")]
    while frontier:
        who, left = frontier.pop(0)
        for node in sorted(demands[who][1] & free.keys()):
            if node in came:
                continue
            came[node] = (who, left)
            if free[node]:
                _shift(node, came, free, on)
                return True
            frontier += [(other, node) for other in range(len(on)) if on[other].get(node)]
    return False


def _shift(
    node: str, came: Mapping[str, tuple[int, str]], free: dict[str, int], on: list[dict[str, int]]
) -> None:
    free[node] -= 1
    while node:
        who, left = came[node]
        on[who][node] = on[who].get(node, 0) + 1
        if left:
            on[who][left] -= 1
        node = left
