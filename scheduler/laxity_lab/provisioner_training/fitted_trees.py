"""The trees of a fit, joined to one list of nodes: `laxity_scheduler.chains.trees` answers by it."""

from typing import NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.trees import Trees
from laxity_scheduler.frame.arrays import Ints


class TreeNodes(NamedTuple):
    """One tree: children are -1 at a leaf."""

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats


def join_trees(trees: list[TreeNodes], base: float) -> Trees:
    """One list of nodes of several trees."""
    sizes = [len(tree.value) for tree in trees]
    roots = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
    own = np.arange(sum(sizes))
    left = np.concatenate([tree.left for tree in trees])
    right = np.concatenate([tree.right for tree in trees])
    leaf, shift = left < 0, np.repeat(roots, sizes)
    return Trees(
        feature=np.where(leaf, 0, np.concatenate([tree.feature for tree in trees])),
        threshold=np.concatenate([tree.threshold for tree in trees]).astype(np.float64),
        left=np.where(leaf, own, left + shift),
        right=np.where(leaf, own, right + shift),
        value=np.concatenate([tree.value for tree in trees]).astype(np.float64),
        roots=roots,
        depth=max(tree_depth(tree) for tree in trees),
        base=base,
    )


def tree_depth(tree: TreeNodes) -> int:
    """Steps from the root to the deepest leaf."""
    depth, level = 0, np.zeros(1, dtype=np.int64)
    while True:
        inner = level[tree.left[level] >= 0]
        if not len(inner):
            return depth
        depth += 1
        level = np.concatenate((tree.left[inner], tree.right[inner]))
