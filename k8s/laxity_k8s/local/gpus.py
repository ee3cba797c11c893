"""The GPUs of this machine: which there are, and which of them a worker sees.

On Kubernetes the node hands each pod GPUs of its own; here CUDA_VISIBLE_DEVICES does, as Slurm does it.
The machine's slots stand for its GPUs in turn, so where there are more slots than GPUs they are shared.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Final

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


def find_gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The NVIDIA GPUs that this process may use, as CUDA names them; () where there are none.

    CUDA_VISIBLE_DEVICES says which, up to the first that is none; without it, all that the machine has.
    """
    if VISIBLE in environ:
        return tuple(_until_none(environ[VISIBLE].split(",")))
    found = [path for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
    return tuple(str(number) for number in range(len(found)))


def _until_none(names: Iterable[str]) -> Iterator[str]:
    for name in map(str.strip, names):
        if name in {"", "-1"}:
            return
        yield name


def gpus_of_nodes(slots: Mapping[str, int], gpus: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The GPU that each slot of each node stands for; {} without GPUs."""
    if not gpus:
        return {}
    in_turn = cycle(gpus)
    return {node: tuple(islice(in_turn, count)) for node, count in slots.items()}


def choose_gpus(slots: Sequence[str], taken: Iterable[str], count: int) -> str:
    """CUDA_VISIBLE_DEVICES of a worker that has so many of a node's slots."""
    free = Counter(slots)
    free.subtract(taken)
    least_shared = sorted(dict.fromkeys(slots), key=lambda gpu: -free[gpu])
    return ",".join(least_shared[:count])
