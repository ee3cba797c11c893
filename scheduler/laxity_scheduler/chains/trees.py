"""Regression trees as plain arrays: what a fit leaves behind, and all that a decision needs.

They are saved without pickles and answer without scikit-learn, one row in about a millisecond.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints

CHUNK: Final = 2_000_000  # nodes looked at together


class Trees(NamedTuple):
    """Nodes of all trees in one list. A leaf's children are itself, so that a walk ends there.

    A prediction is `base` plus the sum of a leaf's `value` per tree; `roots` is (trees,), the other
    arrays are (nodes,). A row goes left where its feature is at most the threshold.
    """

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats
    roots: Ints
    depth: int
    base: float

    def predict(self, rows: NDArray[np.floating]) -> Floats:
        """(n,) for rows of (n, features)."""
        step = max(1, CHUNK // len(self.roots))
        parts = [
            self._predict(rows[first : first + step].astype(np.float64, copy=False))
            for first in range(0, len(rows), step)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _predict(self, rows: Floats) -> Floats:
        node = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        row = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            low = rows[row, self.feature[node]] <= self.threshold[node]
            node = np.where(low, self.left[node], self.right[node])
        total: Floats = self.base + self.value[node].sum(axis=1)
        return total


def read_trees(arrays: Mapping[str, NDArray[np.generic]], prefix: str) -> Trees:
    """What `collect_arrays` gave. KeyError if a part is missing; ValueError if it could walk astray."""

    def whole(name: str) -> Ints:
        return arrays[f"{prefix}.{name}"].astype(np.int64)

    def real(name: str) -> Floats:
        return arrays[f"{prefix}.{name}"].astype(np.float64)

    trees = Trees(
        feature=whole("feature"),
        threshold=real("threshold"),
        left=whole("left"),
        right=whole("right"),
        value=real("value"),
        roots=whole("roots"),
        depth=int(whole("depth")),
        base=float(real("base")),
    )
    count = len(trees.value)
    for name in ("left", "right", "roots"):
        places = getattr(trees, name)
        if places.min(initial=0) < 0 or places.max(initial=0) >= count:
            raise ValueError(f"{prefix}.{name} points beyond its {count} nodes")
    return trees
