"""Gradient boosting by xgboost, which this module alone imports; its trees are kept as plain arrays.

Mirage's parameters are not released, so these are xgboost's own defaults. One thread, as its answers
are to be the same on every machine.
"""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xgboost import XGBRegressor

from laxity_lab.provisioner_training.fitted_trees import TreeNodes, join_trees
from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.trees import Trees


def fit_xgboost(rows: NDArray[np.floating], values: Floats, seed: int) -> Trees:
    """Boosted trees of squared errors."""
    model = XGBRegressor(random_state=seed, n_jobs=1)
    model.fit(rows, values)
    learner = json.loads(model.get_booster().save_raw("json"))["learner"]
    trees = learner["gradient_booster"]["model"]["trees"]
    base = np.asarray(json.loads(learner["learner_model_param"]["base_score"])).ravel()[0]
    return join_trees([nodes_of(tree) for tree in trees], base=float(base))


def nodes_of(tree: dict[str, Any]) -> TreeNodes:
    """A row goes left below the split; `Trees` goes left up to it: the single float just below.

    A leaf's value stands where an inner node has its split.
    """
    split = np.array(tree["split_conditions"], dtype=np.float32)
    left = np.array(tree["left_children"], dtype=np.int64)
    return TreeNodes(
        np.array(tree["split_indices"], dtype=np.int64),
        np.nextafter(split, np.float32(-np.inf)).astype(np.float64),
        left,
        np.array(tree["right_children"], dtype=np.int64),
        split.astype(np.float64),
    )
