"""On how many nodes so many workers lie: the fewest that hold them."""

from laxity_profiler.estimate import Workload


def fewest_nodes(
    workload: Workload, gpus_per_node: int | None, node_workers: int | None, width: int
) -> int | None:
    """By the GPUs of a node, else by the most workers that were seen on one; None without either."""
    held = node_workers
    if gpus_per_node:
        held = max(1, gpus_per_node // workload.gpus_per_worker)
    return -(-width // held) if held else None
