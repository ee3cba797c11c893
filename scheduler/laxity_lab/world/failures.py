"""Nodes that fail and come back: exponential times, one seeded stream per node."""

from dataclasses import dataclass, field
from zlib import crc32

import numpy as np


@dataclass(slots=True)
class Failures:
    """A node is up for `between_s` on average and down for `repair_s` on average."""

    between_s: float
    repair_s: float
    seed: int = 0
    _streams: dict[str, np.random.Generator] = field(default_factory=dict)

    def up_s(self, node: str) -> float:
        return float(self._stream(node).exponential(self.between_s))

    def down_s(self, node: str) -> float:
        return float(self._stream(node).exponential(self.repair_s))

    def _stream(self, node: str) -> np.random.Generator:
        if node not in self._streams:
            self._streams[node] = np.random.default_rng([self.seed, crc32(node.encode())])
        return self._streams[node]
