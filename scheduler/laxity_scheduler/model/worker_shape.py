"""What a worker requests of its node, and how many such workers a node holds."""

from collections.abc import Mapping
from typing import Final, NamedTuple

Amounts = Mapping[str, int]  # by resource; None in its place: plenty of everything
Needs = tuple[tuple[str, int], ...]  # (resource, amount) beside GPUs, in order
GIB: Final = 1 << 30
MIB: Final = 1 << 20
BYTES: Final = ("memory", "ephemeral-storage")
PORT: Final = "host port "  # begins the name of a port of the node; there is one of each


class WorkerShape(NamedTuple):
    """GPUs of one worker, and what else it requests."""

    gpus: int
    needs: Needs = ()


class NodeRoom(NamedTuple):
    """What a node has: GPUs, and amounts of everything else that workers request."""

    gpus: int
    amounts: Amounts | None = None


def workers_that_fit(node: NodeRoom, shape: WorkerShape) -> int:
    """How many workers of this shape a node holds: the least over all that they request."""
    workers = max(0, node.gpus) // shape.gpus
    if node.amounts is None:
        return workers
    for resource, amount in shape.needs:
        workers = min(workers, max(0, amount_of(node.amounts, resource)) // amount)
    return workers


def find_scarce(node: NodeRoom, shape: WorkerShape, workers: int) -> str:
    """What a node has too little of for so many workers; "" if there is enough of all but GPUs."""
    amounts = node.amounts
    if amounts is None:
        return ""
    scarce = (name for name, each in shape.needs if amount_of(amounts, name) < workers * each)
    return next(scarce, "")


def describe_needs(needs: Needs) -> str:
    """In words, as pods ask for it; that a pod is one of its node's is nobody's wish."""
    return ", ".join(_describe(name, amount) for name, amount in needs if name != "pods")


def _describe(name: str, amount: int) -> str:
    if name.startswith(PORT):
        return name
    if name == "cpu":
        return f"cpu {amount / 1000:g}"
    if name in BYTES and amount >= MIB:
        return f"{name} {amount / GIB:.4g}Gi" if amount >= GIB else f"{name} {amount / MIB:.4g}Mi"
    return f"{name} {amount}"


def amount_of(amounts: Amounts, resource: str) -> int:
    return amounts.get(resource, int(resource.startswith(PORT)))


def spend(amounts: Amounts, needs: Needs, workers: int) -> dict[str, int]:
    """What is left when so many workers more are there; fewer than 0 give back."""
    left = {resource: amount_of(amounts, resource) - workers * amount for resource, amount in needs}
    return {**amounts, **left}
