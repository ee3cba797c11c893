"""A known step time, and tables of throughput as files."""

import math
from collections.abc import Callable
from pathlib import Path

TRUTH = (0.02, 0.004, 0.01, 0.03, 0.005)


def step_s(batch: int, gpus: int, *, node: int = 8) -> float:
    """Seconds per step by the form that is fitted."""
    a, b, c, d, e = TRUTH
    nodes = math.ceil(gpus / node)
    return a + b * batch / gpus + c * math.log2(min(gpus, node)) + d * (nodes > 1) + e * (nodes - 1)


def grid(*, most: int = 64) -> list[tuple[int, int]]:
    widths = [2**k for k in range(int(math.log2(most)) + 1)]
    return [(batch, width) for batch in (32, 64, 128) for width in widths]


def write_table(
    path: Path,
    *,
    batches: tuple[int, ...] = (32, 64, 128),
    widths: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64),
    seconds: Callable[[int, int], float] = step_s,
) -> None:
    rows = [["global_batch_size", *map(str, widths)]]
    rows += [[str(batch), *(repr(1.0 / seconds(batch, w)) for w in widths)] for batch in batches]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(",".join(row) for row in rows))
